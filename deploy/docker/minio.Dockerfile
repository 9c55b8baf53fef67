# MinIO without root: the server's program alone, a user of its own, and a folder that a volume takes its owner from.
ARG MINIO_IMAGE=minio/minio:RELEASE.2025-09-07T16-13-09Z
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm
FROM ${MINIO_IMAGE} AS minio

# The base that the services have too, so that it is there already; it also has what asks MinIO for its health.
FROM ${PYTHON_IMAGE}
RUN install -d -o 10001 -g 10001 /data
COPY --from=minio /usr/bin/minio /usr/bin/minio
ENV HOME=/tmp
USER 10001:10001
EXPOSE 9000
ENTRYPOINT ["minio"]
CMD ["server", "/data"]
