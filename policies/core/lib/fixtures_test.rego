# Pools and pods for tests.
package fixtures

whole := pool("whole", "None", [])

mig := pool("mig", "MIG", [{"name": "A100", "memoryMiB": 40960, "replicas": 0, "replicaResource": "", "profiles": [
	profile("1g.5gb", 1, 5120, 0.125),
	profile("1g.5gb+me", 1, 5120, 0.125),
	profile("3g.20gb", 3, 20480, 0.5),
	profile("7g.40gb", 7, 40960, 1),
]}])

time_sliced := pool("time-sliced", "TimeSlicing", [{"name": "T4", "memoryMiB": 15360, "replicas": 4, "replicaResource": "nvidia.com/gpu.shared", "profiles": []}])

pool(name, sharing, products) := {
	"name": name,
	"scheduler": "kube-scheduler",
	"sharing": sharing,
	"compute": "Fair",
	"burst": "Refuse",
	"driverReservePercent": 3,
	"driverLimits": false,
	"nodeSelector": {"pool": name},
	"topologyKeys": [],
	"tolerations": [{"key": "gpu", "operator": "Exists"}],
	"unsupported": "",
	"quotaResource": sprintf("sluice.dev/gpu-milli.%s", [name]),
	"guaranteedResource": sprintf("sluice.dev/guaranteed-milli.%s", [name]),
	"quotaApplied": true,
	"guaranteed": 1,
	"limit": 2,
	"weight": 1,
	"products": products,
	"nodeKinds": [{"product": "", "gpus": 0, "perGPU": {"cpu": 12000, "memory": 85899345920}}],
	"resourceFactors": {"nonPreemptible": 1, "preemptible": 1.5},
	"resources": [],
}

# named is a pool whose nodes offer GPUs by these names.
named(resources) := object.union(pool("named", "None", []), {"resources": [{"name": name, "gpus": gpus} | some name, gpus in resources]})

named_gpus(name, count) := object.union(gpus(count), {"resources": {name: count}})

profile(name, compute, memory, quota_charge) := {
	"name": name,
	"resource": sprintf("nvidia.com/mig-%s", [replace(name, "+", ".")]),
	"compute": compute,
	"memoryMiB": memory,
	"quotaCharge": quota_charge,
	"plain": has_no_attribute(name),
}

default has_no_attribute(_) := true

has_no_attribute(name) := false if contains(name, "+")

cpu := {
	"type": "train", "hasTTY": false, "owner": {"group": "", "kind": ""},
	"form": "None", "devices": 0, "share": 0, "shareLimit": 0, "memoryMiB": 0, "memoryLimitMiB": 0, "migProfile": "", "container": "", "resources": {}, "requests": {}, "otherResources": [],
	"claims": [], "deviceClasses": {}, "nodePools": [], "maxRuntime": "", "maxRuntimeSeconds": 0,
}

gpus(count) := object.union(cpu, {"form": "Whole", "devices": count, "share": 1, "container": "main", "resources": {"nvidia.com/gpu": count}})

share(fraction) := object.union(cpu, {"form": "Share", "devices": 1, "share": fraction, "container": "main"})

memory(mib) := object.union(cpu, {"form": "Memory", "devices": 1, "memoryMiB": mib, "container": "main"})

slices(count, name) := object.union(cpu, {
	"form": "MIG", "devices": count, "migProfile": name, "container": "main",
	"resources": {sprintf("nvidia.com/mig-%s", [name]): count},
})

project := {
	"name": "thesis", "namespace": "thesis", "department": "students", "phase": "Active",
	"closed": false, "closedSince": "", "owners": ["Anna Beispiel", "Ben Muster"],
	"limits": {
		"train": {"maxRuntime": "48h", "maxRuntimeSeconds": 172800, "idleTimeoutSeconds": 0},
		"interactive": {"maxRuntime": "8h", "maxRuntimeSeconds": 28800, "idleTimeoutSeconds": 7200},
		"inference": {"maxRuntime": "", "maxRuntimeSeconds": 0, "idleTimeoutSeconds": 0},
	},
	"activity": "5%/5m",
	"objects": {},
	"refusedNodes": [],
	"openPools": [],
	"unlistedResources": {},
}

# pod returns a pod whose container main has these limits.
pod(limits) := {"metadata": {}, "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]}}

# parameters are the default parameters of all policies.
parameters := {
	"allowClaims": false,
	"unlistedResources": "Warn",
	"maximumGraceSeconds": 3600,
	"maximumGraceSecondsOnGPUNodes": 60,
	"minimumGraceSeconds": 30,
	"schedulingGates": [],
	"refuseOtherClasses": false,
	"defaultClass": "",
	"runtimeClasses": ["nvidia", "nvidia-cdi", "nvidia-legacy"],
	"refuseEnvFrom": true,
	"allowedHostPaths": [],
	"allowedCapabilities": [],
}

# input_for returns the input of a policy for a workload in these pools.
input_for(workload, pools) := {
	"object": pod(workload.resources), "workload": workload, "project": project, "nodePools": pools, "parameters": parameters,
	"review": {"userInfo": {"username": "anna"}},
}
