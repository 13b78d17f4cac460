# Server and tiering job in one image. Not tested by the suite: no Docker there.
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
RUN pip install --no-cache-dir uv
COPY pyproject.toml README.md LICENSE requirements.lock ./
COPY src ./src
RUN uv venv /opt/lakeward \
    && uv pip install --python /opt/lakeward/bin/python --constraints requirements.lock '.[all]'

FROM python:3.11-slim-bookworm
# procps: Spark's scripts call ps. Java comes with the Python packages.
RUN apt-get update && apt-get install -y --no-install-recommends procps && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 lakeward && mkdir /data && chown lakeward /data
COPY --from=build /opt/lakeward /opt/lakeward
ENV PATH=/opt/lakeward/bin:$PATH
USER lakeward
VOLUME /data
EXPOSE 9050 9051
ENTRYPOINT ["lakeward"]
CMD ["server", "--data", "/data"]
