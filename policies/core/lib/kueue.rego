# Pods that Kueue queues.
package sluice.lib.kueue

# suspended_by_owner: Kueue suspends the pod's owner or the owner's workload instead of
# gating the pod. An admission policy validates the owner references of pods.
suspended_by_owner if {"group": input.workload.owner.group, "kind": input.workload.owner.kind} in suspended_kinds

suspended_kinds := {{"group": "batch", "kind": "Job"}, {"group": "ray.io", "kind": "RayCluster"}} | {{"group": "kubeflow.org", "kind": kind} |
	some kind in ["JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob"]
}
