// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"sluice.dev/manifests"
)

// Kind is one that is served.
type Kind struct {
	schema.GroupVersionKind
	// Resource is the plural in paths: jobs.
	Resource string
	// Namespaced is whether its objects lie in namespaces.
	Namespaced bool
	// Status is whether the status is a subresource: then it is not written with
	// the rest, nor the rest with it.
	Status bool
}

func (k *Kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// kubernetes are the kinds of Kubernetes and its neighbours that lifecycle may
// read or write: version, resource, kind, and what of "namespaced, status" holds.
const kubernetes = `
v1 pods Pod ns
v1 nodes Node s
v1 namespaces Namespace s
v1 events Event n
v1 services Service ns
v1 configmaps ConfigMap n
v1 secrets Secret n
v1 serviceaccounts ServiceAccount n
v1 resourcequotas ResourceQuota ns
v1 limitranges LimitRange n
v1 persistentvolumeclaims PersistentVolumeClaim ns
v1 replicationcontrollers ReplicationController ns
apps/v1 deployments Deployment ns
apps/v1 replicasets ReplicaSet ns
apps/v1 statefulsets StatefulSet ns
apps/v1 daemonsets DaemonSet ns
batch/v1 jobs Job ns
batch/v1 cronjobs CronJob ns
events.k8s.io/v1 events Event n
coordination.k8s.io/v1 leases Lease n
networking.k8s.io/v1 networkpolicies NetworkPolicy n
policy/v1 poddisruptionbudgets PodDisruptionBudget ns
rbac.authorization.k8s.io/v1 roles Role n
rbac.authorization.k8s.io/v1 rolebindings RoleBinding n
rbac.authorization.k8s.io/v1 clusterroles ClusterRole -
rbac.authorization.k8s.io/v1 clusterrolebindings ClusterRoleBinding -
scheduling.k8s.io/v1 priorityclasses PriorityClass -
admissionregistration.k8s.io/v1 validatingadmissionpolicies ValidatingAdmissionPolicy s
admissionregistration.k8s.io/v1 validatingadmissionpolicybindings ValidatingAdmissionPolicyBinding -
admissionregistration.k8s.io/v1 validatingwebhookconfigurations ValidatingWebhookConfiguration -
admissionregistration.k8s.io/v1 mutatingwebhookconfigurations MutatingWebhookConfiguration -
apiextensions.k8s.io/v1 customresourcedefinitions CustomResourceDefinition s
resource.k8s.io/v1 resourceclaims ResourceClaim ns
resource.k8s.io/v1 deviceclasses DeviceClass -
jobset.x-k8s.io/v1alpha2 jobsets JobSet ns
leaderworkerset.x-k8s.io/v1 leaderworkersets LeaderWorkerSet ns
kubeflow.org/v1 notebooks Notebook ns
kubeflow.org/v1 pytorchjobs PyTorchJob ns
ray.io/v1 rayjobs RayJob ns
ray.io/v1 rayclusters RayCluster ns
kueue.x-k8s.io/v1beta2 workloads Workload ns
`

// Kinds are all kinds that a Server has without being told: those of Kubernetes
// that lifecycle may touch, some of its neighbours', and Sluice's own.
func Kinds() ([]Kind, error) {
	var kinds []Kind
	for line := range strings.Lines(strings.TrimSpace(kubernetes)) {
		words := strings.Fields(line)
		version, err := schema.ParseGroupVersion(words[0])
		if err != nil {
			return nil, fmt.Errorf("kinds: %w", err)
		}
		kinds = append(kinds, Kind{
			GroupVersionKind: version.WithKind(words[2]), Resource: words[1],
			Namespaced: strings.Contains(words[3], "n"), Status: strings.Contains(words[3], "s"),
		})
	}
	own, err := ownKinds()
	return append(kinds, own...), err
}

// ownKinds are read from the CustomResourceDefinitions.
func ownKinds() ([]Kind, error) {
	const folder = "crds"
	files, err := fs.Glob(manifests.Files, folder+"/sluice.dev_*.yaml")
	if err != nil {
		return nil, fmt.Errorf("kinds: %w", err)
	}
	var kinds []Kind
	for _, file := range files {
		raw, err := manifests.Files.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("kinds: %w", err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(raw, &crd); err != nil {
			return nil, fmt.Errorf("kinds: %s: %w", path.Base(file), err)
		}
		for i := range crd.Spec.Versions {
			version := &crd.Spec.Versions[i]
			kinds = append(kinds, Kind{
				GroupVersionKind: schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind},
				Resource:         crd.Spec.Names.Plural,
				Namespaced:       crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
				Status:           version.Subresources != nil && version.Subresources.Status != nil,
			})
		}
	}
	return kinds, nil
}
