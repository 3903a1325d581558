# The gateway with the runners that most servers need. Alpine will not do: onnxruntime has no wheels for musl.
FROM python:3.13-slim

RUN apt-get update \
 && apt-get install --yes --no-install-recommends git nodejs npm \
 && rm -rf /var/lib/apt/lists/* \
 && pip install --no-cache-dir uv \
 && useradd --create-home shortlist \
 && mkdir /data /config \
 && chown shortlist /data /config

COPY pyproject.toml README.md LICENSE THIRD_PARTY_NOTICES CHANGELOG.md /src/
COPY src /src/src
RUN pip install --no-cache-dir /src

USER shortlist
ENV XDG_CONFIG_HOME=/config XDG_DATA_HOME=/data XDG_CACHE_HOME=/data/cache
VOLUME /data
EXPOSE 8765
ENTRYPOINT ["shortlist"]
CMD ["serve", "--http", "0.0.0.0:8765"]
