# The image of the server, which KubeRay also uses as Ray image. docs/deployment.md says how to build
# and use it.
#
# BASE: Debian with python3 (3.11 or later) and its venv module; of tag and digest, the digest decides. VARIANT: cpu or cuda.
ARG BASE=python:3.12.15-slim-trixie@sha256:a6e34c598f2467ed0e9a8d349809fcd8b5c603269512df273a0bb1784edc11b1
ARG VARIANT=cpu

# --- third-party packages, in a virtual environment without pip
FROM ${BASE} AS packages
ARG VARIANT
# NVIDIA's libraries for CUDA 13.0, the oldest version that onnxruntime-gpu 1.31 supports. Drivers for
# a later 13 run them too. They are not in constraints.txt, which is for all machines.
ARG CUDA_LIBRARIES="nvidia-cuda-runtime==13.0.96 nvidia-cuda-nvrtc==13.0.88 \
  nvidia-cublas==13.1.0.3 nvidia-cufft==12.0.0.61 nvidia-curand==10.4.0.35 \
  nvidia-cudnn-cu13==9.15.1.9 cuda-bindings==13.5.0"
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
WORKDIR /build
COPY pyproject.toml constraints.txt ./
# On x86-64 the project requires onnxruntime-gpu, which is 250 MB larger and useless without a GPU. The
# CPU image requires onnxruntime in the same version instead.
RUN case "$VARIANT" in \
      cpu) sed -i -E -e '/"onnxruntime-gpu>=/d' -e 's/^( *"onnxruntime>=[^;"]*);[^"]*"/\1"/' \
             pyproject.toml; \
           sed -i 's/^onnxruntime-gpu==/onnxruntime==/' constraints.txt; \
           : > more.txt ;; \
      cuda) printf '%s\n' 'onnxruntime-gpu[cuda,cudnn]' $CUDA_LIBRARIES > more.txt ;; \
      *) echo "VARIANT is cpu or cuda, not '$VARIANT'" >&2; exit 1 ;; \
    esac; \
    python3 -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' \
      > requirements.txt
RUN --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/pip; \
    python3 -m venv --without-pip /opt/offramp; \
    /opt/pip/bin/pip install --quiet --disable-pip-version-check -c constraints.txt setuptools; \
    /opt/pip/bin/pip --python /opt/offramp/bin/python install --quiet --disable-pip-version-check \
      --only-binary :all: -c constraints.txt -r requirements.txt -r more.txt

# --- the project's own code, in its own layer because it is small and changes often
FROM packages AS code
COPY README.md LICENSE ./
COPY serve serve
COPY models models
COPY export export
COPY loadtest loadtest
RUN /opt/pip/bin/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
      --wheel-dir /wheel .; \
    /opt/pip/bin/pip --python /opt/offramp/bin/python install --quiet --disable-pip-version-check \
      --no-deps --prefix /staged /wheel/*; \
    cp -a /staged/. /opt/offramp; \
    /opt/pip/bin/pip --python /opt/offramp/bin/python check

# --- the final image
FROM ${BASE}
# KubeRay's readiness probe needs bash, wget and grep. tini forwards signals and reaps orphaned
# processes of Ray. Debian keeps only the newest version of a package, so versions cannot be pinned.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini wget \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir /bundles \
    && install -d -o 10001 -g 0 -m 770 /state
COPY --from=packages /opt/offramp /opt/offramp
COPY --from=code /staged /opt/offramp
# The server writes only to HOME and /dev/shm, so the file system may be read-only and any user id
# works. serve/cluster/node.py explains Ray's variables; the last one is for NVIDIA's container runtime.
ENV PATH=/opt/offramp/bin:$PATH \
    HOME=/tmp \
    USER=offramp \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    ORT_DISABLE_TELEMETRY=1 \
    RAY_USAGE_STATS_ENABLED=0 \
    RAY_worker_niceness=0 \
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=0 \
    FORWARDED_ALLOW_IPS="" \
    RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S=2 \
    RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS=1 \
    RAY_kill_worker_timeout_milliseconds=2000 \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /bundles
USER 10001:0
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["wget", "--no-proxy", "-q", "-O", "/dev/null", "http://127.0.0.1:8000/health/ready"]
ENTRYPOINT ["tini", "--"]
# Serves every folder under /bundles that has a manifest. OFFRAMP_KEYS names a file of keys; without one the
# server refuses to start, unless OFFRAMP_NO_AUTH is 1. OFFRAMP_STATE=/state keeps policies in a volume there.
CMD ["bash", "-c", "found=(/bundles/*/manifest.json); exec offramp serve --standalone --host 0.0.0.0 --port 8000 \"${found[@]%/manifest.json}\""]

ARG VARIANT
ARG VERSION=0.1.0
ARG SOURCE=
ARG REVISION=
LABEL org.opencontainers.image.title="offramp" \
      org.opencontainers.image.description="Inference server for transformer classifiers that may stop early (${VARIANT})" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.licenses="Apache-2.0"
