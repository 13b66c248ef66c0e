# Freshet's images. One stage compiles everything. The images contain only the programs and their
# libraries: no shell, no package manager, no compiler. reward-python, env-python and sandbox are
# based on Debian and contain a shell.
#
#   control       freshet-controller, -reward, -env, the freshet command, redis-server
#   compute       freshet-rollout, -trainer, freshet local, LibTorch for CPUs
#   compute-cuda  compute with LibTorch's CUDA libraries; the node provides the driver
#   reward-python Python with freshet.reward_server and Math-Verify
#   env-python    Python with freshet.environment_server, Gymnasium, clients of OpenEnv and MCP
#   sandbox       freshet-sandbox with Python, g++, Node.js and bash
#
# ./dev image builds them and prints their sizes. To build one by hand:
#   docker build --target control -t freshet-control .
# BASE must be a Debian 12. Its libraries are copied into the images.
ARG BASE=docker.io/library/debian:12

FROM ${BASE} AS build
ARG JOBS=
ENV XDG_CACHE_HOME=/cache CARGO_HOME=/cache/cargo FRESHET_JOBS=${JOBS} DEBIAN_FRONTEND=noninteractive
WORKDIR /src
# Dependencies change rarely, so their layer comes first. The secret `ca` is a PEM file for networks
# whose proxy has its own certificate authority. policy-rc.d keeps packages from starting daemons.
COPY dev ./
COPY cmake/torch_wheels.txt cmake/
RUN --mount=type=cache,target=/cache --mount=type=secret,id=ca,target=/run/secrets/ca \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca CARGO_HTTP_CAINFO=/run/secrets/ca; fi; \
    printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d && \
    ./dev setup && \
    apt-get install -y -qq --no-install-recommends patchelf redis-server redis-tools >/dev/null && \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
COPY . .
ARG VERSION=0.1.0
RUN --mount=type=cache,target=/cache --mount=type=secret,id=ca,target=/run/secrets/ca \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca CARGO_HTTP_CAINFO=/run/secrets/ca; fi; \
    ./dev build && \
    python3 images/assemble_root.py control /out/control --version "${VERSION}" && \
    python3 images/assemble_root.py compute /out/compute --version "${VERSION}" && \
    python3 images/assemble_root.py sandbox /out/sandbox --version "${VERSION}" && \
    rm -rf build

FROM scratch AS control
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="freshet-control" \
      org.opencontainers.image.description="Freshet: controller, reward, environment, command line" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /out/control/ /
ENV PATH=/usr/bin HOME=/home/freshet
USER 10001:10001
WORKDIR /home/freshet
ENTRYPOINT ["/usr/bin/freshet"]
CMD ["--help"]

FROM scratch AS compute
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="freshet-compute" \
      org.opencontainers.image.description="Freshet: rollout and trainer, on CPUs" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /out/compute/ /
ENV PATH=/usr/bin HOME=/home/freshet
USER 10001:10001
WORKDIR /home/freshet
ENTRYPOINT ["/usr/bin/freshet"]
CMD ["--help"]

# The programs of compute, not recompiled, plus Freshet's kernels and LibTorch's CUDA libraries.
FROM build AS build-cuda
ARG VERSION=0.1.0
RUN --mount=type=cache,target=/cache --mount=type=secret,id=ca,target=/run/secrets/ca \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca CARGO_HTTP_CAINFO=/run/secrets/ca; fi; \
    ./dev cuda freshet_cuda && \
    python3 images/assemble_root.py compute-cuda /out/compute-cuda --from-root /out/compute --version "${VERSION}"

FROM scratch AS compute-cuda
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="freshet-compute-cuda" \
      org.opencontainers.image.description="Freshet: rollout and trainer, with CUDA" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build-cuda /out/compute-cuda/ /
ENV PATH=/usr/bin HOME=/home/freshet \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
WORKDIR /home/freshet
ENTRYPOINT ["/usr/bin/freshet"]
CMD ["--help"]

# The Python client and what it needs, in a virtual environment for each image.
FROM ${BASE} AS build-python
ENV DEBIAN_FRONTEND=noninteractive
WORKDIR /src
RUN printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d && \
    apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv >/dev/null && \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
COPY proto proto
COPY clients/python clients/python
RUN --mount=type=cache,target=/cache --mount=type=secret,id=ca,target=/run/secrets/ca \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    python3 -m venv /opt/freshet && \
    /opt/freshet/bin/pip install -q --cache-dir /cache/pip './clients/python[math]' && \
    /opt/freshet/bin/python -m compileall -q /opt/freshet && \
    /opt/freshet/bin/python -m freshet.reward_server --help >/dev/null
RUN --mount=type=cache,target=/cache --mount=type=secret,id=ca,target=/run/secrets/ca \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    python3 -m venv /opt/environments && \
    /opt/environments/bin/pip install -q --cache-dir /cache/pip './clients/python[gymnasium,mcp,openenv]' && \
    /opt/environments/bin/python -m compileall -q /opt/environments && \
    /opt/environments/bin/python -m freshet.environment_server --help >/dev/null

FROM ${BASE} AS reward-python
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="freshet-reward-python" \
      org.opencontainers.image.description="Freshet: reward functions in Python" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN apt-get update -qq && \
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 >/dev/null && \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
COPY --from=build-python /opt/freshet/ /opt/freshet/
ENV PATH=/opt/freshet/bin:/usr/bin:/bin HOME=/tmp PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["python3", "-m", "freshet.reward_server"]
CMD ["--help"]

FROM ${BASE} AS env-python
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="freshet-env-python" \
      org.opencontainers.image.description="Freshet: environments in Python" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN apt-get update -qq && \
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 >/dev/null && \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
COPY --from=build-python /opt/environments/ /opt/environments/
ENV PATH=/opt/environments/bin:/usr/bin:/bin HOME=/tmp PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["python3", "-m", "freshet.environment_server"]
CMD ["--help"]

FROM ${BASE} AS sandbox
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="freshet-sandbox" \
      org.opencontainers.image.description="Freshet: runs model-written programs in isolation" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN apt-get update -qq && \
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends bash g++ nodejs python3 >/dev/null && \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
COPY --from=build /out/sandbox/usr/bin/ /usr/bin/
COPY --from=build /out/sandbox/usr/lib/x86_64-linux-gnu/ /opt/freshet/lib/
COPY --from=build /out/sandbox/usr/share/freshet/ /usr/share/freshet/
# Libraries that this Debian does not have.
RUN cp -n /opt/freshet/lib/* /usr/lib/x86_64-linux-gnu/ && rm -rf /opt/freshet && ldconfig && \
    freshet-sandbox --version
ENV PATH=/usr/bin:/bin HOME=/tmp
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["/usr/bin/freshet-sandbox"]
CMD ["--help"]
