# The gateway with the runners that most servers need. Alpine will not do: onnxruntime has no wheels for musl.
FROM python:3.13-slim

# The user has a number, so that Kubernetes can check that it is not root.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends git nodejs npm \
 && rm -rf /var/lib/apt/lists/* \
 && pip install --no-cache-dir uv \
 && useradd --create-home --uid 10001 shortlist \
 && mkdir /data /config \
 && chown shortlist /data /config

COPY pyproject.toml README.md LICENSE THIRD_PARTY_NOTICES CHANGELOG.md /src/
COPY src /src/src
RUN pip install --no-cache-dir '/src[postgres]'

# Everything that is written goes to /data and /tmp: the root file system may be read-only.
USER 10001
ENV XDG_CONFIG_HOME=/config XDG_DATA_HOME=/data XDG_CACHE_HOME=/data/cache XDG_STATE_HOME=/data/state \
    HOME=/data/home PYTHONDONTWRITEBYTECODE=1
VOLUME /data
EXPOSE 8765
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8765/readyz', timeout=2)"]
ENTRYPOINT ["shortlist"]
CMD ["serve", "--http", "0.0.0.0:8765"]
