// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"sluice.dev/manifests"
)

// Kind is a served kind.
type Kind struct {
	schema.GroupVersionKind
	// Resource is the plural in paths: jobs.
	Resource string
	// Namespaced reports whether the objects have namespaces.
	Namespaced bool
	// Status reports whether the status is a subresource. Writes then change either the
	// status or the rest.
	Status bool
}

func (k *Kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// kubernetesKindTable lists the kinds of Kubernetes and related projects that lifecycle may
// read or write: version, resource, kind, and n for namespaced, s for status.
const kubernetesKindTable = `
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
apps/v1 controllerrevisions ControllerRevision n
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

// Kinds returns the default kinds of a Server: those of Kubernetes and related projects
// that lifecycle uses, and Sluice's own.
func Kinds() ([]Kind, error) {
	var kinds []Kind
	for line := range strings.Lines(strings.TrimSpace(kubernetesKindTable)) {
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

// ownKinds reads Sluice's kinds from the CustomResourceDefinitions.
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

// object is a stored object. It is immutable; a write stores a new one.
type object struct {
	namespace, name string
	version         uint64
	labels          labels.Set
	fields          fields.Set

	// tree is the object; nil for a pod, which is stored as protobuf.
	tree map[string]any
	pod  []byte
}

func (o *object) key() string { return o.namespace + "/" + o.name }

// newObject returns the stored form of tree.
func (k *Kind) newObject(tree map[string]any, version uint64) (*object, error) {
	u := unstructured.Unstructured{Object: tree}
	u.SetResourceVersion(strconv.FormatUint(version, 10))
	if k.Resource != "pods" || k.Group != "" {
		return &object{
			namespace: u.GetNamespace(), name: u.GetName(), version: version, labels: u.GetLabels(), tree: tree,
			fields: fields.Set{"metadata.name": u.GetName(), "metadata.namespace": u.GetNamespace()},
		}, nil
	}
	var pod corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, &pod); err != nil {
		return nil, fmt.Errorf("decode pod: %w", err)
	}
	return newPodObject(&pod)
}

// newPodObject returns the stored form of a pod, with its resourceVersion.
func newPodObject(pod *corev1.Pod) (*object, error) {
	version, err := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: resource version: %w", pod.Namespace, pod.Name, err)
	}
	raw, err := pod.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return &object{
		namespace: pod.Namespace, name: pod.Name, version: version, labels: pod.Labels, pod: raw,
		fields: fields.Set{
			"metadata.name": pod.Name, "metadata.namespace": pod.Namespace,
			"status.phase": string(pod.Status.Phase), "spec.nodeName": pod.Spec.NodeName,
		},
	}, nil
}

// content returns a copy of the object as a tree.
func (o *object) content() (map[string]any, error) {
	if o.pod == nil {
		return runtime.DeepCopyJSON(o.tree), nil
	}
	pod, err := o.decodePod()
	if err != nil {
		return nil, err
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
}

func (o *object) decodePod() (*corev1.Pod, error) {
	var pod corev1.Pod
	if err := pod.Unmarshal(o.pod); err != nil {
		return nil, fmt.Errorf("decode pod %s: %w", o.key(), err)
	}
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	return &pod, nil
}

// json returns the object, or only its metadata, in JSON.
func (o *object) json(metadataOnly bool) ([]byte, error) {
	var whole any = o.tree
	if o.pod != nil {
		pod, err := o.decodePod()
		if err != nil {
			return nil, err
		}
		whole = pod
		if metadataOnly {
			whole = &metav1.PartialObjectMetadata{TypeMeta: partialMetadataType, ObjectMeta: pod.ObjectMeta}
		}
	} else if metadataOnly {
		whole = map[string]any{
			"apiVersion": partialMetadataType.APIVersion, "kind": partialMetadataType.Kind,
			"metadata": o.tree["metadata"],
		}
	}
	return json.Marshal(whole)
}

var partialMetadataType = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}

// selection holds the selectors of a request.
type selection struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

// parseSelection parses the selectors of a request.
func parseSelection(namespace string, query url.Values) (*selection, error) {
	s := &selection{namespace: namespace}
	var err error
	if s.labels, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("labelSelector: %v", err))
	}
	if s.fields, err = fields.ParseSelector(query.Get("fieldSelector")); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("fieldSelector: %v", err))
	}
	return s, nil
}

func (s *selection) matches(o *object) bool {
	return (s.namespace == "" || o.namespace == s.namespace) && s.labels.Matches(o.labels) && s.fields.Matches(o.fields)
}
