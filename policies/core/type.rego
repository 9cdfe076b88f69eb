# Determines the workload type of a pod without one: train, interactive or inference.
# Most other policies depend on it.
package core.type

# serving_kinds are the kinds that serve models. The pods of KServe and Knative also have
# a ReplicaSet as owner.
serving_kinds := {
	{"group": "apps", "kind": "Deployment"},
	{"group": "apps", "kind": "ReplicaSet"},
	{"group": "", "kind": "ReplicationController"},
	{"group": "serving.kserve.io", "kind": "InferenceService"},
	{"group": "serving.knative.dev", "kind": "Service"},
	{"group": "serving.knative.dev", "kind": "Configuration"},
	{"group": "serving.knative.dev", "kind": "Revision"},
	{"group": "ray.io", "kind": "RayService"},
}

type := "interactive" if is_interactive

else := "inference" if is_inference

else := "train"

# is_inference: the pod serves a model.
is_inference if owner_kind in serving_kinds

# A RayCluster owns the pods of both RayServices and RayJobs. A label names the kind.
is_inference if {
	input.workload.owner.group == "ray.io"
	input.object.metadata.labels["ray.io/originated-from-crd"] == "RayService"
}

# is_interactive: a user works in the pod.
is_interactive if {
	input.workload.owner.group == "kubeflow.org"
	input.workload.owner.kind == "Notebook"
}

# A StatefulSet owns the pod of a Notebook.
is_interactive if {
	input.workload.owner.group == "apps"
	input.workload.owner.kind == "StatefulSet"
	input.object.metadata.labels["notebook-name"]
}

# A notebook of JupyterHub. It has no owner and no terminal.
is_interactive if {
	input.workload.owner.kind == ""
	input.object.metadata.labels.component == "singleuser-server"
	input.object.metadata.labels.app == "jupyterhub"
}

# Later versions of JupyterHub use the labels that Kubernetes recommends.
is_interactive if {
	input.workload.owner.kind == ""
	input.object.metadata.labels["app.kubernetes.io/component"] == "singleuser-server"
	input.object.metadata.labels["app.kubernetes.io/name"] == "jupyterhub"
}

# A pod without an owner and with a terminal.
is_interactive if {
	input.workload.owner.kind == ""
	input.workload.hasTTY
}

owner_kind := {"group": input.workload.owner.group, "kind": input.workload.owner.kind}
