# No way to a GPU, or past the limits of a share, but by asking for it: not by a
# variable that the container runtime or a sharing library reads, not by a path
# of the node, and not by the runtime itself.
package core.devices

import data.sluice.lib.ask
import data.sluice.lib.containers
import data.sluice.lib.paths

# The images of CUDA say NVIDIA_VISIBLE_DEVICES=all, and a ConfigMap may. What a
# container says itself comes before both.
overrides.spec[list] := without if {
	some list in ["containers", "initContainers"]
	without := [{"name": container.it.name, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]} |
		some container in containers.each
		container.list == list
		not containers.has_gpu(container.it)
	]
	count(without) > 0
}

# In a container with a GPU the device plugin says which one.
remove contains ["spec", container.list, {"name": container.it.name}, "env", {"name": variable.name}] if {
	some container in containers.each
	some variable in container.it.env
	unwanted(variable.name, container.it)
}

unwanted("NVIDIA_VISIBLE_DEVICES", container) if containers.has_gpu(container)

unwanted(name, _) if name in lifting

unwanted(name, _) if strings.any_prefix_match(name, lifting_prefixes)

# Variables that reach other devices, or lift the limits of a share: those of the
# NVIDIA container toolkit, of MPS and of HAMi's library.
lifting := {
	"NVIDIA_IMEX_CHANNELS",
	"NVIDIA_MIG_CONFIG_DEVICES",
	"NVIDIA_MIG_MONITOR_DEVICES",
	"NVIDIA_DEVICE_MAP",
	"CUDA_DEVICE_SM_LIMIT",
	"CUDA_DISABLE_CONTROL",
	"CUDA_OVERSUBSCRIBE",
	"CUDA_TASK_PRIORITY",
	"GPU_CORE_UTILIZATION_POLICY",
}

lifting_prefixes := {"CUDA_MPS_", "CUDA_DEVICE_MEMORY_"}

deny contains {
	"msg": sprintf("volume %s mounts %s of the node, by which GPUs can be reached that were not asked for", [volume.name, volume.hostPath.path]),
	"field": sprintf("spec.volumes[%s].hostPath.path", [volume.name]),
	"fix": "take the volume out, and ask for GPUs in a container's limits",
} if {
	some volume in input.object.spec.volumes
	paths.reaches_devices(volume.hostPath.path)
}

deny contains {
	"msg": sprintf("container %s mounts %s, by which devices are asked for past the scheduler", [container.it.name, mount.mountPath]),
	"field": sprintf("spec.%s[%s].volumeMounts", [container.list, container.it.name]),
	"fix": "take the mount out, and ask for GPUs in the container's limits",
} if {
	some container in containers.each
	some mount in container.it.volumeMounts
	paths.asks_for_devices(mount.mountPath)
}

deny contains {
	"msg": sprintf("container %s is privileged, and so reaches every device of its node", [container.it.name]),
	"field": sprintf("spec.%s[%s].securityContext.privileged", [container.list, container.it.name]),
	"fix": "set it to false; what it needs is mostly a capability or two",
} if {
	some container in containers.each
	container.it.securityContext.privileged == true
}

deny contains {
	"msg": sprintf("runtime class %s is for pods with GPUs, and the pod asks for none", [input.object.spec.runtimeClassName]),
	"field": "spec.runtimeClassName",
	"fix": "leave it out, or ask for a GPU in a container's limits",
} if {
	not ask.gpu
	input.object.spec.runtimeClassName in runtime_classes
}

default runtime_classes := ["nvidia", "nvidia-cdi", "nvidia-legacy"]

runtime_classes := input.parameters.runtimeClasses

deny contains {
	"msg": sprintf("the annotation %s hands devices to the container runtime past the scheduler", [key]),
	"field": sprintf("metadata.annotations[%s]", [key]),
	"fix": "take it out, and ask for GPUs in a container's limits",
} if {
	some key, _ in input.object.metadata.annotations
	startswith(key, "cdi.k8s.io/")
}

# A variable out of a ConfigMap or a Secret comes before the device plugin's. Where
# the container toolkit heeds it (see the parameter's documentation), this refuses
# what may set it.
deny contains {
	"msg": sprintf("container %s has a GPU and takes variables from elsewhere, of which one may be NVIDIA_VISIBLE_DEVICES", [container.it.name]),
	"field": sprintf("spec.%s[%s].envFrom", [container.list, container.it.name]),
	"fix": "give envFrom a prefix, or name the variables in env with valueFrom",
} if {
	input.parameters.refuseEnvFrom
	some container in containers.each
	containers.has_gpu(container.it)
	some source in container.it.envFrom
	startswith("NVIDIA_VISIBLE_DEVICES", object.get(source, "prefix", ""))
}
