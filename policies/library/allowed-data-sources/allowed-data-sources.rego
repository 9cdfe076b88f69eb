# METADATA
# title: Allowed data sources
# description: >-
#   Refuses volumes of other types than those listed, except for directories of listed NFS servers and inline volumes of
#   listed CSI drivers. Directories of nodes (hostPath) are refused by core.devices anyway; its parameter
#   allowedHostPaths allows some.
# custom:
#   misses: what a PersistentVolume behind a claim contains, which only administrators create
package allowed_data_sources

deny contains {
	"msg": sprintf("volume %s is of the type %s", [volume.name, type]),
	"field": sprintf("spec.volumes[%s]", [volume.name]),
	"fix": sprintf("use a type of %s", [concat(", ", input.parameters.types)]),
} if {
	some volume in input.object.spec.volumes
	some type in types_of(volume)
	not type in {"nfs", "csi"}
}

deny contains {
	"msg": sprintf("volume %s: %s is no allowed directory of an NFS server", [volume.name, concat(":", [volume.nfs.server, volume.nfs.path])]),
	"field": sprintf("spec.volumes[%s].nfs", [volume.name]),
	"fix": sprintf("use a directory in one of %s", [concat(", ", [sprintf("%s:%s", [d.server, d.path]) | some d in directories])]),
} if {
	some volume in input.object.spec.volumes
	"nfs" in types_of(volume)
	not allowed_nfs(volume.nfs)
}

deny contains {
	"msg": sprintf("volume %s: the CSI driver %s is not allowed", [volume.name, volume.csi.driver]),
	"field": sprintf("spec.volumes[%s].csi", [volume.name]),
	"fix": "use a PersistentVolumeClaim",
} if {
	some volume in input.object.spec.volumes
	"csi" in types_of(volume)
	not volume.csi.driver in object.get(input.parameters, "csiDrivers", [])
}

# types_of returns the types of a volume that are not always allowed. The API server accepts one type.
types_of(volume) := {type | some type, _ in volume; type != "name"} - {type | some type in input.parameters.types}

directories := object.get(input.parameters, "nfs", [])

allowed_nfs(nfs) if {
	not ".." in split(nfs.path, "/")
	some directory in directories
	nfs.server == directory.server
	startswith(concat("", [nfs.path, "/"]), concat("", [trim_right(directory.path, "/"), "/"]))
}
