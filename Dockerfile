# The binary and what it needs to run: shared libraries, CA certificates, a user. No shell, no packages.
FROM docker.io/library/rust:1.95.0-bookworm AS build
WORKDIR /source
COPY . .
# The commit that "vitistack version" prints.
ARG VITISTACK_COMMIT
RUN cargo build --release --locked --bin vitistack
RUN dev/image-root.sh target/release/vitistack /image

FROM scratch
COPY --from=build /image /
USER 65532:65532
ENTRYPOINT ["/vitistack"]
