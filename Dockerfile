# A static binary on an empty base: no shell, no libraries, no root.
#
#   docker build .                             builds with the Rust image below
#   docker build --build-arg BINARY=prebuilt . takes target/docker/highwater, built by docker/prebuild
#
# BuildKit, the default of today's Docker, leaves out the stage that is not used.
ARG BINARY=build

FROM rust:1-slim-bookworm AS build
WORKDIR /source
COPY . .
RUN docker/prebuild /out

FROM scratch AS prebuilt
# The folder need not exist when the binary is built above: builders that run every stage would
# fail on a plain name, but not on a pattern beside a file that is always there.
COPY LICENSE target/docker* /out/

FROM ${BINARY} AS binary

FROM scratch
COPY --from=binary /out/highwater /highwater
# An empty folder that the user below owns, so that a new volume mounted on it is writable.
COPY --from=binary --chown=65532:65532 /out/data /var/lib/highwater
COPY LICENSE /LICENSE
USER 65532:65532
ENV KAFKA_LOG_DIRS=/var/lib/highwater
VOLUME /var/lib/highwater
EXPOSE 9092
STOPSIGNAL SIGTERM
ENTRYPOINT ["/highwater"]
CMD ["serve"]
