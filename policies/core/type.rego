# Determines the workload type of a pod without one: train, interactive or inference.
# Most other policies depend on it.
package core.type

# serving are the kinds that serve models. The pods of KServe and Knative also have a
# ReplicaSet as owner.
serving := {
	{"group": "apps", "kind": "Deployment"},
	{"group": "apps", "kind": "ReplicaSet"},
	{"group": "", "kind": "ReplicationController"},
	{"group": "serving.kserve.io", "kind": "InferenceService"},
	{"group": "serving.knative.dev", "kind": "Service"},
	{"group": "serving.knative.dev", "kind": "Configuration"},
	{"group": "serving.knative.dev", "kind": "Revision"},
	{"group": "ray.io", "kind": "RayService"},
}

type := "interactive" if person_waits

else := "inference" if serves

else := "train"

serves if group_and_kind in serving

# A RayCluster owns the pods of both RayServices and RayJobs. A label names the kind.
serves if {
	input.workload.owner.group == "ray.io"
	input.object.metadata.labels["ray.io/originated-from-crd"] == "RayService"
}

person_waits if {
	input.workload.owner.group == "kubeflow.org"
	input.workload.owner.kind == "Notebook"
}

# A StatefulSet owns the pod of a Notebook.
person_waits if {
	input.workload.owner.group == "apps"
	input.workload.owner.kind == "StatefulSet"
	input.object.metadata.labels["notebook-name"]
}

# A notebook of JupyterHub. It has no owner and no terminal.
person_waits if {
	input.workload.owner.kind == ""
	input.object.metadata.labels.component == "singleuser-server"
	input.object.metadata.labels.app == "jupyterhub"
}

# Later versions of JupyterHub use the labels that Kubernetes recommends.
person_waits if {
	input.workload.owner.kind == ""
	input.object.metadata.labels["app.kubernetes.io/component"] == "singleuser-server"
	input.object.metadata.labels["app.kubernetes.io/name"] == "jupyterhub"
}

# A pod without an owner and with a terminal.
person_waits if {
	input.workload.owner.kind == ""
	input.workload.hasTTY
}

group_and_kind := {"group": input.workload.owner.group, "kind": input.workload.owner.kind}
