package hostpaths

violation[{"msg": msg, "details": {"volume": volume.name}}] {
	volume := input.review.object.spec.volumes[_]
	path := volume.hostPath.path
	not allowed(path)
	msg := sprintf("volume <%v> mounts %v of the node; the allowed paths are %v", [volume.name, path, input.parameters.paths])
}

allowed(path) {
	startswith(path, input.parameters.paths[_])
}
