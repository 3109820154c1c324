# syntax=docker/dockerfile:1
# vLLM with its patches, installed by pip. The build context is the folder of patchkit's wheel, and nothing else:
#
#     make wheel
#     docker build --file examples/container/pip.Dockerfile --tag vllm-patched dist
#
# podman and buildah take the same file.
ARG BASE=docker.io/library/python:3.12-slim
FROM ${BASE}

# The words of `pip install`: distributions, and options such as --constraint or --no-compile.
ARG PACKAGES="vllm==0.16.0 speculators==0.3.0"

# A numeric user: an orchestrator can tell that it is not root.
RUN useradd --uid 10001 --user-group --create-home vllm
ENV PATH=/opt/venv/bin:$PATH

# The large layer stands below patchkit, so a new patch does not install vLLM again. The cache stays out of the image, and
# so does an index with a password: --secret id=pip,src=pip.conf.
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    python3 -m venv /opt/venv && pip install ${PACKAGES}

# Into the environment of vLLM, so that each of its processes can prove itself. Copied, not mounted: some builders do not
# see that a mounted wheel has changed, and would keep the layer of the old one.
COPY patchkit-*.whl /opt/patchkit/
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    pip install /opt/patchkit/patchkit-*.whl

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
# who will run the server, after every step that could have changed a file (another pip install, a COPY, a chmod), and
# again whenever a layer below has changed. It writes nothing, so the layer is empty.
RUN patchkit check ${SETS}

# The root folder can be read-only: docker run --read-only --tmpfs /tmp --volume cache:/home/vllm/.cache vllm-patched MODEL
ENTRYPOINT ["vllm", "serve"]
