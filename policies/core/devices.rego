# Denies access to GPUs that the pod did not request, and attempts to exceed the limits
# of a share. Both are possible by environment variables of the container runtime or a
# sharing library, by paths of the node, and by settings of the runtime. Sets the
# variables by which the node pool limits a share.
package core.devices

import data.sluice.lib.containers
import data.sluice.lib.format
import data.sluice.lib.kai
import data.sluice.lib.paths
import data.sluice.lib.pools
import data.sluice.lib.request
import data.sluice.lib.shares

overrides.spec[list] := entries if {
	some list in ["containers", "initContainers"]
	entries := [{"name": container.spec.name, "env": [{"name": name, "value": value} | some name, value in required]} |
		some container in containers.entries
		container.list == list
		required := required_variables(container.spec)
		count(required) > 0
	]
	count(entries) > 0
}

# required_variables returns the variables that limit a container, by name. CUDA images
# set NVIDIA_VISIBLE_DEVICES=all, and a ConfigMap can set it too. A container's own
# variable overrides both.
required_variables(container) := shares.variables if containers.has_gpu(container)

else := {"NVIDIA_VISIBLE_DEVICES": "void"}

# The rule checks all names of a container at once, since a pod can have very many.
remove contains ["spec", container.list, {"name": container.spec.name}, "env", {"name": name}] if {
	some container in containers.entries
	names := {variable.name | some variable in container.spec.env}
	forbidden := (names & variables_to_remove(container.spec)) | with_bypass_prefix(names)
	count(forbidden) > 0
	some name in (forbidden - object.keys(required_variables(container.spec)))
	not limited_by_kai(container.spec, name)
}

# variables_to_remove returns the variables that a container must not set. The device
# plugin sets NVIDIA_VISIBLE_DEVICES in a container with a GPU, and KAI-Scheduler sets it
# for a share. The author's own value is removed.
variables_to_remove(container) := bypass_variables | {"NVIDIA_VISIBLE_DEVICES"} if {
	containers.has_gpu(container)
	not set_by_kai(container, "NVIDIA_VISIBLE_DEVICES")
}

else := bypass_variables

# set_by_kai: the only value of the variable is that of KAI-Scheduler.
set_by_kai(container, name) if {
	has_kai_share
	variables := [variable | some variable in container.env; variable.name == name]
	count(variables) == 1
	kai.is_device_reference(container, variables[0].valueFrom.configMapKeyRef)
}

# limited_by_kai: the variable is a limit that KAI's plugin hamicore sets.
limited_by_kai(container, name) if {
	name in {"CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT"}
	containers.has_gpu(container)
	set_by_kai(container, name)
}

# has_kai_share: KAI-Scheduler grants the pod a share.
has_kai_share if {
	pools.preferred.sharing == "KAI"
	input.workload.form in {"Share", "Memory"}
}

with_bypass_prefix(names) := {name | some name in names; strings.any_prefix_match(name, bypass_prefixes)} if {
	strings.any_prefix_match(names, bypass_prefixes)
} else := set()

# bypass_variables and bypass_prefixes are the variables of the NVIDIA container toolkit,
# MPS and HAMi's library that give access to other devices, or set or remove the limits of
# a share.
bypass_variables := {
	"NVIDIA_IMEX_CHANNELS",
	"NVIDIA_MIG_CONFIG_DEVICES",
	"NVIDIA_MIG_MONITOR_DEVICES",
	"NVIDIA_DEVICE_MAP",
	"ACTIVE_OOM_KILLER",
	"CUDA_DISABLE_CONTROL",
	"CUDA_OVERSUBSCRIBE",
	"CUDA_TASK_PRIORITY",
	"GPU_CORE_UTILIZATION_POLICY",
}

bypass_prefixes := {"CUDA_MPS_", "CUDA_DEVICE_MEMORY_", "CUDA_DEVICE_SM_", "NVIDIA_GPU_MEMORY_"}

# All pods of a node share its directories, which can contain links to other paths.
deny contains {
	"msg": sprintf("volume %s mounts %s of the node; %s", [volume.name, volume.hostPath.path, host_path_reason]),
	"field": sprintf("spec.volumes[%s].hostPath.path", [volume.name]),
	"fix": "use a PersistentVolumeClaim for files, or an emptyDir for scratch and shared memory",
} if {
	some volume in input.object.spec.volumes
	path := volume.hostPath.path
	not paths.exposes_devices(path)
	not allowed_host_path(path)
}

allowed_host_path(path) if {
	not ".." in split(path, "/")
	some prefix in input.parameters.allowedHostPaths
	paths.within(paths.clean(path), paths.clean(prefix))
}

host_path_reason := "pods of projects cannot mount directories of nodes" if count(input.parameters.allowedHostPaths) == 0

host_path_reason := sprintf("pods of projects can mount only those in %s", [format.list(input.parameters.allowedHostPaths)]) if {
	count(input.parameters.allowedHostPaths) > 0
}

# No parameter allows these paths: they give access to GPUs without a charge.
deny contains {
	"msg": sprintf("volume %s mounts %s of the node, which gives access to GPUs that the pod did not request", [volume.name, volume.hostPath.path]),
	"field": sprintf("spec.volumes[%s].hostPath.path", [volume.name]),
	"fix": "remove the volume, and request GPUs in a container's limits",
} if {
	some volume in input.object.spec.volumes
	paths.exposes_devices(volume.hostPath.path)
}

deny contains {
	"msg": sprintf("container %s mounts %s, which requests devices outside the scheduler", [container.spec.name, mount.mountPath]),
	"field": sprintf("spec.%s[%s].volumeMounts", [container.list, container.spec.name]),
	"fix": "remove the mount, and request GPUs in the container's limits",
} if {
	some container in containers.entries
	some mount in container.spec.volumeMounts
	paths.requests_devices(mount.mountPath)
}

deny contains {
	"msg": sprintf("container %s has the block device %s at %s, which is a path of GPUs", [container.spec.name, device.name, device.devicePath]),
	"field": sprintf("spec.%s[%s].volumeDevices", [container.list, container.spec.name]),
	"fix": "choose another devicePath, such as /dev/xvda",
} if {
	some container in containers.entries
	some device in container.spec.volumeDevices
	paths.is_device_path(device.devicePath)
}

deny contains {
	"msg": sprintf("container %s is privileged, which gives access to every device of its node", [container.spec.name]),
	"field": sprintf("spec.%s[%s].securityContext.privileged", [container.list, container.spec.name]),
	"fix": "set it to false; most programs need only one or two capabilities",
} if {
	some container in containers.entries
	container.spec.securityContext.privileged == true
}

deny contains {
	"msg": sprintf("container %s adds the capability %s, with which %s", [container.spec.name, capability, risky_capabilities[name]]),
	"field": sprintf("spec.%s[%s].securityContext.capabilities.add", [container.list, container.spec.name]),
	"fix": "remove it; most programs need only a narrower one",
} if {
	some container in containers.entries
	some capability in container.spec.securityContext.capabilities.add
	name := trim_prefix(upper(capability), "CAP_")
	risky_capabilities[name]
	not name in input.parameters.allowedCapabilities
}

# risky_capabilities give access beyond the container's own devices and processes.
# SYS_PTRACE, which debuggers need, is not among them: without hostPID it only covers
# the pod's own processes. Neither is MKNOD: most runtimes grant it to all containers,
# and the container cannot open the device files that it creates.
risky_capabilities := {
	"ALL": "it has every capability of the node",
	"SYS_ADMIN": "it can mount the node's devices and leave its own namespaces",
	"SYS_MODULE": "it can load a driver into the node's kernel",
	"SYS_RAWIO": "it can write to the memory of devices past the driver",
	"BPF": "it can remove the restrictions on its devices",
	"DAC_READ_SEARCH": "it can open every file of the node by its inode",
}

deny contains {
	"msg": "the pod sees all processes of its node, and through them the devices and variables of other pods",
	"field": "spec.hostPID",
	"fix": "set it to false; containers of one pod see each other's processes with shareProcessNamespace",
} if {
	input.object.spec.hostPID == true
}

deny contains {
	"msg": sprintf("runtime class %s is for pods with GPUs, and the pod requests none", [input.object.spec.runtimeClassName]),
	"field": "spec.runtimeClassName",
	"fix": "leave it out, or request a GPU in a container's limits",
} if {
	not request.includes_gpu
	input.object.spec.runtimeClassName in input.parameters.runtimeClasses
}

deny contains {
	"msg": sprintf("the annotation %s gives the container devices or mounts of its node", [key]),
	"field": sprintf("metadata.annotations[%s]", [key]),
	"fix": "remove it, and request GPUs in a container's limits",
} if {
	some key, _ in input.object.metadata.annotations
	injects_devices(key)
}

# injects_devices: a container runtime, or a plugin of NRI, injects devices, mounts or an I/O priority by this
# annotation, for a container ("devices.nri.io/container.main") or for the pod. The
# admission policy sluice-managed-metadata has the same keys, and those of its
# parameters, and covers updates.
injects_devices(key) if split(key, "/")[0] in {
	"cdi-devices.noderesource.dev",
	"cdi-devices.nri.io",
	"cdi.k8s.io",
	"cdi.nri.io",
	"devices.crio.io",
	"devices.gke.io",
	"devices.noderesource.dev",
	"devices.nri.io",
	"io-priority.noderesource.dev",
	"io-priority.nri.io",
	"io.kubernetes.cri-o.Devices",
	"mounts.noderesource.dev",
	"mounts.nri.io",
	"netdevice.noderesource.dev",
	"netdevices.nri.containerd.io",
	"netdevices.nri.io",
}

# KAI-Scheduler reserves a GPU for as long as any pod has the label of its group, so the
# rule holds for pods without GPUs and with every scheduler.
deny contains {
	"msg": sprintf("only KAI-Scheduler assigns a pod to a GPU by the label %s", [key]),
	"field": sprintf("metadata.labels[%s]", [key]),
	"fix": "remove it, and request GPUs in a container's limits, or a share of one with the annotation sluice.dev/gpu",
} if {
	some key, _ in input.object.metadata.labels
	startswith(key, "runai-gpu-group")
}

# A container's own variables override the device plugin's, also if they come from a
# ConfigMap or Secret (envFrom). An entry in env cannot restore the plugin's value, so
# the rule denies every source that can set the variable. A container without a GPU gets
# the value void above, which overrides envFrom.
deny contains {
	"msg": sprintf("container %s has a GPU and imports all variables of a ConfigMap or a Secret, one of which could be NVIDIA_VISIBLE_DEVICES or remove the limits of a share", [container.spec.name]),
	"field": sprintf("spec.%s[%s].envFrom", [container.list, container.spec.name]),
	"fix": "give envFrom a prefix, or name the variables in env with valueFrom",
} if {
	input.parameters.refuseEnvFrom
	some container in containers.entries
	containers.has_gpu(container.spec)
	some source in container.spec.envFrom
	not added_by_kai(container.spec, source)
	can_set_guarded_variable(object.get(source, "prefix", ""))
}

added_by_kai(container, source) if {
	has_kai_share
	kai.is_device_reference(container, source.configMapRef)
}

guarded_variables := (bypass_variables | bypass_prefixes) | {"NVIDIA_VISIBLE_DEVICES"}

# can_set_guarded_variable: envFrom with this prefix can set one of the variables above.
can_set_guarded_variable(prefix) if {
	some name in guarded_variables
	startswith(name, prefix)
}

can_set_guarded_variable(prefix) if strings.any_prefix_match(prefix, bypass_prefixes)
