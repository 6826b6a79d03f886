# An image of zoolet: docker build -t zoolet:0.1.0 . && docker run -p 2181:2181 zoolet:0.1.0
# --build-arg SOURCE=URL puts the address of the sources into the label.
# It takes the variables of the official, Bitnami and Confluent images of ZooKeeper: docs/containers.md.
FROM python:3.13-slim AS build
COPY . /src
RUN python -m venv /opt/zoolet && /opt/zoolet/bin/pip install --no-cache-dir -c /src/constraints.txt "/src[admin,tls]"

FROM python:3.13-slim
ARG SOURCE=""
LABEL org.opencontainers.image.title="zoolet" \
      org.opencontainers.image.description="A ZooKeeper-compatible coordination server" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.source="$SOURCE" \
      org.opencontainers.image.licenses="Apache-2.0 AND MIT"
# The data folders of the three images, and the user of the official one.
RUN groupadd --gid 1000 zookeeper \
    && useradd --uid 1000 --gid 1000 --no-create-home --shell /usr/sbin/nologin zookeeper \
    && mkdir -p /data /datalog /conf /bitnami/zookeeper/data /var/lib/zookeeper/data /var/lib/zookeeper/log \
    && chown -R zookeeper:zookeeper /data /datalog /conf /bitnami /var/lib/zookeeper
COPY --from=build /opt/zoolet /opt/zoolet
ENV PATH=/opt/zoolet/bin:$PATH PYTHONUNBUFFERED=1
USER zookeeper
VOLUME ["/data"]
EXPOSE 2181 2281 7000 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=5s --retries=3 CMD ["zoolet", "container", "status"]
ENTRYPOINT ["zoolet", "container"]
