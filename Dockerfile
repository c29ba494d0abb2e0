# pgbb with the readers of all file formats; records are mounted, never copied into the image:
#   docker build -t pgbb . && docker run --rm --network none -v "$PWD:/data" pgbb fit my.csv --schema my.toml ...
FROM python:3.12-slim
COPY . /source
RUN pip install --no-cache-dir "/source[files]" && rm -rf /source && useradd --create-home pgbb
USER pgbb
WORKDIR /data
ENTRYPOINT ["pgbb"]
