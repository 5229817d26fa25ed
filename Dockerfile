# A static binary on an empty base: no shell, no libraries, no root.
#
#   docker build .                             builds with the Rust image below
#   docker build --build-arg BINARY=prebuilt . takes target/docker/highwater, built by docker/prebuild
ARG BINARY=build

FROM rust:1-slim-bookworm AS build
WORKDIR /source
COPY . .
RUN docker/prebuild /out

FROM scratch AS prebuilt
COPY target/docker /out

FROM ${BINARY} AS binary

FROM scratch
COPY --from=binary /out/highwater /highwater
# An empty folder that the user below owns, so that a new volume mounted on it is writable.
COPY --from=binary --chown=65532:65532 /out/data /var/lib/highwater
USER 65532:65532
ENV KAFKA_LOG_DIRS=/var/lib/highwater
VOLUME /var/lib/highwater
EXPOSE 9092
STOPSIGNAL SIGTERM
ENTRYPOINT ["/highwater"]
CMD ["serve"]
