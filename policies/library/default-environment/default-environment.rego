# METADATA
# title: Default environment and volumes
# description: >-
#   Gives pods with GPUs variables and mounts that their author left out: caches of models and datasets, proxies. A variable or a
#   mount of the author at the same place stays.
# custom:
#   misses: a claim that does not exist in the namespace, for which the pod waits. Match the projects that have it
package default_environment

import data.sluice.lib.request

defaults := {"spec": {
	"containers": {"*": {
		"env": [{"name": name, "value": value} | some name, value in object.get(input.parameters, "env", {})],
		"volumeMounts": [mount | some mount in mounts],
	}},
	"volumes": [{
		"name": volume_name(claim), "persistentVolumeClaim": {"claimName": claim.claim, "readOnly": object.get(claim, "readOnly", false)},
	} |
		some claim in claims
	],
}} if {
	request.includes_gpu
}

claims := object.get(input.parameters, "claims", [])

mounts := [{"name": volume_name(claim), "mountPath": claim.mountPath} | some claim in claims]

volume_name(claim) := sprintf("default-%s", [claim.claim])
