# syntax=docker/dockerfile:1
# vLLM with its patches, installed by uv. The build context is the folder of patchkit's wheel, and nothing else:
#
#     make wheel
#     docker build --file examples/container/uv.Dockerfile --tag vllm-patched dist
#
# podman and buildah take the same file.
ARG BASE=docker.io/library/python:3.12-slim
ARG UV=ghcr.io/astral-sh/uv:0.9.7
FROM ${UV} AS uv

FROM ${BASE}

# The words of `uv pip install`: distributions, and options such as --constraint or --torch-backend.
ARG PACKAGES="vllm==0.16.0 speculators==0.3.0"

# A numeric user: an orchestrator can tell that it is not root.
RUN useradd --uid 10001 --user-group --create-home vllm
ENV PATH=/opt/venv/bin:$PATH VIRTUAL_ENV=/opt/venv

# The large layer stands below patchkit, so a new patch does not install vLLM again. uv and its cache stay out of the image,
# and so does an index with a password: --secret id=uv,src=uv.toml. The cache is another file system: nothing can be linked
# to it. Bytecode is compiled here, for the user of the image cannot write any.
RUN --mount=type=bind,from=uv,source=/uv,target=/usr/local/bin/uv \
    --mount=type=cache,target=/root/.cache/uv \
    --mount=type=secret,id=uv,target=/etc/uv/uv.toml \
    uv venv --no-managed-python /opt/venv && uv pip install --link-mode copy --compile-bytecode ${PACKAGES}

# Into the environment of vLLM, so that each of its processes can prove itself. Copied, not mounted: some builders do not
# see that a mounted wheel has changed, and would keep the layer of the old one.
COPY patchkit-*.whl /opt/patchkit/
RUN --mount=type=bind,from=uv,source=/uv,target=/usr/local/bin/uv \
    --mount=type=cache,target=/root/.cache/uv \
    --mount=type=secret,id=uv,target=/etc/uv/uv.toml \
    uv pip install --link-mode copy --compile-bytecode --refresh-package patchkit /opt/patchkit/patchkit-*.whl

# In the stage that installs vLLM, where the files are still as the wheel shipped them. A patch that does not land ends the
# build here. The bytecode of the files that change goes; that of all others stays.
# SETS names sets and patches; declared only here, so that another choice does not install vLLM again.
ARG SETS="kimi-k25-serve kimi-k25-extract"
RUN patchkit apply ${SETS}

# Whatever else the image needs goes here.

# Each process of vLLM compares its files with the journal, and stops unless they are the patched ones.
ENV PATCHKIT_REQUIRE=journal
USER 10001:10001

# The last step, and a layer of its own: `apply` says what it wrote, `check` says what the image holds. It runs as the user
# who will run the server, after every step that could have changed a file (another uv pip install, a COPY, a chmod), and
# again whenever a layer below has changed. It writes nothing, so the layer is empty.
RUN patchkit check ${SETS}

# The root folder can be read-only: docker run --read-only --tmpfs /tmp --volume cache:/home/vllm/.cache vllm-patched MODEL
ENTRYPOINT ["vllm", "serve"]
