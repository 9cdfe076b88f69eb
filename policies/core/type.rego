# What a pod is for, where its author did not say: train, interactive or
# inference. Most of what others decide depends on it.
package core.type

# Controllers that serve: KServe's and Knative's pods are of a ReplicaSet too.
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

# The pods of a RayService are a RayCluster's, as those of a RayJob are.
serves if {
	input.workload.owner.group == "ray.io"
	input.object.metadata.labels["ray.io/originated-from-crd"] == "RayService"
}

person_waits if {
	input.workload.owner.group == "kubeflow.org"
	input.workload.owner.kind == "Notebook"
}

# The pod of a Notebook is a StatefulSet's.
person_waits if {
	input.workload.owner.group == "apps"
	input.workload.owner.kind == "StatefulSet"
	input.object.metadata.labels["notebook-name"]
}

# A notebook that JupyterHub made, and that nobody controls: a kernel in a browser
# has no terminal.
person_waits if {
	input.workload.owner.kind == ""
	input.object.metadata.labels.component == "singleuser-server"
	input.object.metadata.labels.app == "jupyterhub"
}

# Later ones have the labels that Kubernetes recommends.
person_waits if {
	input.workload.owner.kind == ""
	input.object.metadata.labels["app.kubernetes.io/component"] == "singleuser-server"
	input.object.metadata.labels["app.kubernetes.io/name"] == "jupyterhub"
}

# A pod of nobody's, at a terminal.
person_waits if {
	input.workload.owner.kind == ""
	input.workload.hasTTY
}

group_and_kind := {"group": input.workload.owner.group, "kind": input.workload.owner.kind}
