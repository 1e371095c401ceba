#!/bin/sh
# Stands for nvcc in tests/kernel_cache.rs. It finds toolkit.h beside this file, where lines that begin with `80:` or `90:` are text of one
# architecture, lines that begin with `host:` text of the host. Every compilation is noted in `compiled` beside this file. A line `edited` in a
# source file adds a line to it while it is compiled; a line `wrong` is an error.
set -eu
here=$(dirname "$0")
mode=compile archs='' host='' out='' source=''
while [ $# -gt 0 ]; do
    case $1 in
    --version) # of nvcc itself, or of the host compiler
        if [ "$mode" = preprocess ]; then echo "host compiler ${NVCC_CCBIN:-1}"; else echo 'nvcc 1'; fi
        exit
        ;;
    -E) mode=preprocess ;;
    -U__CUDA_ARCH__) host=yes ;;
    -gencode)
        archs="$archs $2"
        shift
        ;;
    -o)
        out=$2
        shift
        ;;
    *.cu) source=$1 ;;
    esac
    shift
done
arch=${archs##*sm_}
if [ "$mode" = preprocess ]; then
    echo "# 1 \"$source\""
    if [ -n "$host" ]; then kept=host; else kept=$arch; fi
    if grep -q toolkit.h "$source"; then grep "^$kept:" "$here/toolkit.h"; fi
    exit
fi
basename "$source" >>"$here/compiled"
if grep -q '^wrong' "$source"; then
    echo "$source(1): error: wrong" >&2
    exit 1
fi
echo "object:$archs $(cat "$source")" >"$out"
echo "ptxas info    : Compiling $(basename "$source") for$archs, ${NVCC_APPEND_FLAGS:-no flags}" >&2
if grep -q '^edited' "$source"; then
    sleep 0.01
    echo 'edited again' >>"$source"
fi
