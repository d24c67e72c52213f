# The server: docker build -t bide . && docker run -p 7433:7433 -v bide:/data bide
# One static binary in an image with nothing else in it. docs/deploy.md tells the rest.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /bide ./cmd/bide && mkdir /data

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /bide /bide
COPY --from=build --chown=nonroot:nonroot /data /data
VOLUME /data
WORKDIR /data
EXPOSE 7433
# Not loopback: it starts only when there is a key, see docs/deploy.md.
ENTRYPOINT ["/bide"]
CMD ["serve", "--db", "/data/bide.db", "--addr", "0.0.0.0:7433"]
