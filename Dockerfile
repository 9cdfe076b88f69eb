# syntax=docker/dockerfile:1

# The images of Sluice, one target each: webhook, lifecycle, gpuagent and sluice (the CLI, for hook Jobs).
#
#   docker build --target webhook --build-arg VERSION=v0.1.0 --build-arg COMMIT=$(git rev-parse HEAD) .
#
# The build runs natively on the platform of the image: the agent is linked with glibc through C.

ARG GO_VERSION=1.26.8

FROM golang:${GO_VERSION}-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION
ARG COMMIT
# Both stages of the Makefile depend on VERSION, COMMIT, the sources and the toolchain alone.
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    make build-release VERSION="${VERSION}" COMMIT="${COMMIT}"
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    make sbom VERSION="${VERSION}" COMMIT="${COMMIT}"

# The static binaries need no system beside certificates, which the base contains.
FROM gcr.io/distroless/static-debian12:nonroot AS static
ARG VERSION
ARG COMMIT
LABEL org.opencontainers.image.vendor="The Sluice Authors" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}"
USER 65532:65532

FROM static AS webhook
LABEL org.opencontainers.image.title="sluice-webhook" \
      org.opencontainers.image.description="Admission webhook of Sluice"
COPY --from=build /src/bin/sbom/webhook.cdx.json /usr/share/sbom/
COPY --from=build /src/bin/webhook /webhook
ENTRYPOINT ["/webhook"]

FROM static AS lifecycle
LABEL org.opencontainers.image.title="sluice-lifecycle" \
      org.opencontainers.image.description="Controllers of Sluice"
COPY --from=build /src/bin/sbom/lifecycle.cdx.json /usr/share/sbom/
COPY --from=build /src/bin/lifecycle /lifecycle
ENTRYPOINT ["/lifecycle"]

FROM static AS sluice
LABEL org.opencontainers.image.title="sluice" \
      org.opencontainers.image.description="Command-line interface of Sluice"
COPY --from=build /src/bin/sbom/sluice.cdx.json /usr/share/sbom/
COPY --from=build /src/bin/sluice /sluice
ENTRYPOINT ["/sluice"]

# The agent opens NVIDIA's library at run time with dlopen, so it needs the dynamic linker of glibc.
# The driver permits only root to partition GPUs.
FROM gcr.io/distroless/base-nossl-debian12:latest AS gpuagent
ARG VERSION
ARG COMMIT
LABEL org.opencontainers.image.vendor="The Sluice Authors" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}" \
      org.opencontainers.image.title="sluice-gpuagent" \
      org.opencontainers.image.description="GPU agent of Sluice, one on each GPU node"
USER 0:0
COPY --from=build /src/bin/sbom/gpuagent.cdx.json /usr/share/sbom/
COPY --from=build /src/bin/gpuagent /gpuagent
ENTRYPOINT ["/gpuagent"]
