# Both images for both architectures, with an SBOM and a statement of how each was built:
#
#   make audit; REGISTRY=registry.example/team/ REVISION=$(git rev-parse HEAD) docker buildx bake -f deploy/docker-bake.hcl --push
#
# One that is not of this machine is built under emulation (QEMU), or by a builder of its kind. The folder `wheelhouse` has wheels of
# one architecture only: remove it, or add `--set '*.platform=linux/amd64'`.
variable "REGISTRY" { default = "" }
variable "VERSION" { default = "0.1.0" }
variable "REVISION" { default = "unknown" }

group "default" { targets = ["agent", "full"] }

target "image" {
  context    = "."
  dockerfile = "deploy/Dockerfile"
  platforms  = ["linux/amd64", "linux/arm64"]
  args       = { VERSION = VERSION, REVISION = REVISION }
  attest     = ["type=sbom", "type=provenance,mode=max"]
}

target "agent" {
  inherits = ["image"]
  target   = "agent"
  tags     = ["${REGISTRY}spazio-agent:${VERSION}"]
}

target "full" {
  inherits = ["image"]
  target   = "full"
  tags     = ["${REGISTRY}spazio:${VERSION}"]
}
