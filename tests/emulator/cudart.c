/* Stands in for libcudart_static.a where kernels run on the emulated driver: what the compiler's code and csrc/common/launch.cuh call of the
 * CUDA runtime, handed on to the functions of src/runtime.rs. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stddef.h>

static void *emulated(const char *name) {
    static void *library;
    if (!library) library = dlopen("libcuda.so.1", RTLD_NOW);
    return library ? dlsym(library, name) : NULL;
}

/* Without the emulated driver every call fails as with a driver that is too old. */
#define CALL(name, type, ...)                                                                                          \
    do {                                                                                                               \
        type *function = (type *)emulated(name);                                                                       \
        return function ? (cudaError_t)function(__VA_ARGS__) : cudaErrorInsufficientDriver;                            \
    } while (0)

struct wrapper {
    int magic, version;
    const void *image;
    const void *files;
};

void **__cudaRegisterFatBinary(void *binary) {
    size_t (*function)(const void *) = (size_t(*)(const void *))emulated("emulated_register_image");
    return function ? (void **)(function(((struct wrapper *)binary)->image) + 1) : NULL;
}

void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }

void __cudaUnregisterFatBinary(void **handle) { (void)handle; }

/* Tables of kernels lie in their modules; the host asks for none by its own name. */
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int is_external, size_t bytes, int is_constant, int is_global) {
    (void)handle, (void)host, (void)device, (void)name, (void)is_external, (void)bytes, (void)is_constant, (void)is_global;
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, void *tid, void *bid, void *block,
                            void *grid, int *warp) {
    (void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    void (*function)(size_t, const void *, const char *) = (void (*)(size_t, const void *, const char *))emulated("emulated_register_function");
    if (function) function((size_t)handle - 1, host, name);
}

/* The stubs that the compiler makes for <<<>>> refer to these; kernels are launched by cudaLaunchKernelExC alone. */
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    (void)grid, (void)block, (void)shared, (void)stream;
    return cudaErrorMissingConfiguration;
}

cudaError_t __cudaGetKernel(void **kernel, const void *host) {
    *kernel = (void *)host;
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) {
    (void)kernel, (void)grid, (void)block, (void)arguments, (void)shared, (void)stream;
    return cudaErrorMissingConfiguration;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments) {
    unsigned shape[9] = {config->gridDim.x,  config->gridDim.y,  config->gridDim.z, config->blockDim.x, config->blockDim.y,
                         config->blockDim.z, 1,                  1,                 1};
    int cooperative = 0;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        const cudaLaunchAttribute *attribute = &config->attrs[i];
        if (attribute->id == cudaLaunchAttributeClusterDimension) {
            shape[6] = attribute->val.clusterDim.x;
            shape[7] = attribute->val.clusterDim.y;
            shape[8] = attribute->val.clusterDim.z;
        } else if (attribute->id == cudaLaunchAttributeCooperative) {
            cooperative = attribute->val.cooperative;
        }
    }
    typedef int launch(const void *, const unsigned *, unsigned, int, void *, void **);
    CALL("emulated_launch", launch, kernel, shape, (unsigned)config->dynamicSmemBytes, cooperative, config->stream, arguments);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel) {
    unsigned long long sizes[3] = {0};
    int (*function)(const void *, unsigned long long *) = (int (*)(const void *, unsigned long long *))emulated("emulated_attributes");
    if (!function) return cudaErrorInsufficientDriver;
    const int status = function(kernel, sizes);
    *attributes = (struct cudaFuncAttributes){0};
    attributes->sharedSizeBytes = sizes[0];
    attributes->localSizeBytes = sizes[1];
    attributes->maxThreadsPerBlock = (int)sizes[2];
    return (cudaError_t)status;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value) {
    typedef int set(const void *, int, int);
    CALL("emulated_set_attribute", set, kernel, (int)attribute, value);
}

cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    typedef int get(int *, int, int);
    CALL("cuDeviceGetAttribute", get, value, (int)attribute, device);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned int version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result) {
    (void)version, (void)flags;
    *function = emulated(name);
    *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
