# An image of zoolet: docker build -t zoolet . && docker run -p 2181:2181 zoolet
# It takes the variables of the official, Bitnami and Confluent images of ZooKeeper: docs/operations.md.
FROM python:3.13-slim AS build
COPY . /src
RUN python -m venv /opt/zoolet && /opt/zoolet/bin/pip install --no-cache-dir "/src[admin,tls]"

FROM python:3.13-slim
LABEL org.opencontainers.image.title="zoolet" \
      org.opencontainers.image.description="A ZooKeeper-compatible coordination server"
# The data folders of the three images, and the user of the official one.
RUN groupadd --gid 1000 zookeeper \
    && useradd --uid 1000 --gid 1000 --no-create-home --shell /usr/sbin/nologin zookeeper \
    && mkdir -p /data /datalog /conf /bitnami/zookeeper/data /var/lib/zookeeper/data /var/lib/zookeeper/log \
    && chown -R zookeeper:zookeeper /data /datalog /conf /bitnami /var/lib/zookeeper
COPY --from=build /opt/zoolet /opt/zoolet
ENV PATH=/opt/zoolet/bin:$PATH PYTHONUNBUFFERED=1
USER zookeeper
VOLUME ["/data"]
EXPOSE 2181 7000 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=5s --retries=3 CMD ["zoolet", "container", "status"]
ENTRYPOINT ["zoolet", "container"]
