// Launches of kernels. The status returned is that of the launch itself, never an earlier error of the thread.
#pragma once
#include <cuda_runtime.h>

#include <type_traits>

#include "../bops.h"

namespace bops {

struct launch_shape {
    dim3 grid, block;
    uint32_t shared_bytes = 0,
             cluster = 1;           // shared_bytes: dynamic, of a block. cluster: blocks, along y if the grid has more than one row, else along x
    bool overlaps_previous = false; // programmatic dependent launch: the kernel itself waits for the previous one
    bool cooperative = false;       // all blocks are resident at once, so that the kernel may synchronise its grid
};

template <typename... P> bops_status launch(void (*kernel)(P...), const launch_shape &shape, bops_stream stream, const P &...arguments) {
    cudaLaunchAttribute attributes[3];
    cudaLaunchConfig_t config = {};
    config.gridDim = shape.grid;
    config.blockDim = shape.block;
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = attributes;
    if (shape.cluster > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        const bool along_y = shape.grid.y > 1;
        attributes[config.numAttrs].val.clusterDim.x = along_y ? 1 : shape.cluster;
        attributes[config.numAttrs].val.clusterDim.y = along_y ? shape.cluster : 1;
        attributes[config.numAttrs].val.clusterDim.z = 1;
        ++config.numAttrs;
    }
    if (shape.overlaps_previous) {
        attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[config.numAttrs].val.programmaticStreamSerializationAllowed = 1;
        ++config.numAttrs;
    }
    if (shape.cooperative) {
        attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
        attributes[config.numAttrs].val.cooperative = 1;
        ++config.numAttrs;
    }
    return bops_status(cudaLaunchKernelEx(&config, kernel, arguments...));
}

// Clusters of up to so many blocks run on every device that has clusters; larger ones have to be allowed for each kernel.
constexpr uint32_t portable_cluster = 8;

// Loads the kernel's module and sets the attributes that `shape` needs. Shared memory is allowed up to the device's limit, since the attribute belongs
// to the kernel and other plans launch it with other sizes.
template <typename... P> bops_status prepare(void (*kernel)(P...), const launch_shape &shape) {
    cudaFuncAttributes attributes;
    cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
    if (status == cudaSuccess && shape.shared_bytes > 0) {
        int device = 0, limit = 0;
        status = cudaGetDevice(&device);
        if (status == cudaSuccess) status = cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
        if (status == cudaSuccess && shape.shared_bytes + attributes.sharedSizeBytes > size_t(limit)) status = cudaErrorInvalidValue;
        if (status == cudaSuccess)
            status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, limit - int(attributes.sharedSizeBytes));
    }
    if (status == cudaSuccess && shape.cluster > portable_cluster)
        status = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    return bops_status(status);
}

// What a family does with the kernel that a choice selects: prepare it in Plan::new, or launch it.
struct prepare_action {
    template <typename... P, typename... Q> bops_status operator()(void (*kernel)(P...), const launch_shape &shape, const Q &...) const {
        return prepare(kernel, shape);
    }
};

struct launch_action {
    bops_stream stream;
    template <typename... P> bops_status operator()(void (*kernel)(P...), const launch_shape &shape, const std::remove_cv_t<P> &...arguments) const {
        return launch(kernel, shape, stream, arguments...);
    }
};

} // namespace bops

// Defines the two functions of a form, declared by BOPS_FORM. `kernels`(of, params, choice, operands, workspace, action) calls the action with each
// kernel of the form, its launch shape and its arguments.
#define BOPS_DEFINE_FORM(form, specialisation_type, params_type, choice_type, operands_type, kernels)                                                \
    bops_status form##_prepare(const specialisation_type *of, const params_type *params, const choice_type *choice) {                                \
        return kernels(*of, *params, *choice, operands_type{}, nullptr, bops::prepare_action{});                                                     \
    }                                                                                                                                                \
    bops_status form##_launch(const specialisation_type *of, const params_type *params, const choice_type *choice, const operands_type *operands,    \
                              void *workspace, bops_stream stream) {                                                                                 \
        return kernels(*of, *params, *choice, *operands, workspace, bops::launch_action{stream});                                                    \
    }
