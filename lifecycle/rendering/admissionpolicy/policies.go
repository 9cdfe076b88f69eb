// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/api/workloadkind"
)

// The files of package manifests that this package reads.
const (
	policyFiles   = "base/admission/policies/*.yaml"
	parameterFile = "crds/sluice.dev_admissionparameters.yaml"
)

const (
	policyKind  = "ValidatingAdmissionPolicy"
	bindingKind = "ValidatingAdmissionPolicyBinding"
)

// LoadPolicies reads all policies and bindings, each policy before its binding. A binding whose
// file says Warn gets the action Deny if denyOutside is set: those are the policies on namespaces
// outside projects. Errors name the file.
func LoadPolicies(files fs.FS, denyOutside bool) ([]*unstructured.Unstructured, error) {
	names, err := fs.Glob(files, policyFiles)
	if err != nil {
		return nil, fmt.Errorf("list admission policies: %w", err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("list admission policies: no files %s", policyFiles)
	}
	var objects []*unstructured.Unstructured
	for _, name := range names {
		read, err := readObjects(files, name)
		if err != nil {
			return nil, err
		}
		for _, object := range read {
			switch kind := object.GroupVersionKind(); {
			case kind == admissionv1.SchemeGroupVersion.WithKind(policyKind):
			case kind == admissionv1.SchemeGroupVersion.WithKind(bindingKind):
				if err := setAction(object, denyOutside); err != nil {
					return nil, fmt.Errorf("read %s: %w", name, err)
				}
			default:
				return nil, fmt.Errorf("read %s: %s %s is neither a policy nor a binding", name, kind.Kind, object.GetName())
			}
		}
		objects = append(objects, read...)
	}
	return objects, nil
}

// loadParameterCRD reads the CustomResourceDefinition of AdmissionParameters.
func loadParameterCRD(files fs.FS) (*unstructured.Unstructured, error) {
	objects, err := readObjects(files, parameterFile)
	if err != nil {
		return nil, err
	}
	if len(objects) != 1 || objects[0].GroupVersionKind() != apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition") {
		return nil, fmt.Errorf("read %s: want one CustomResourceDefinition", parameterFile)
	}
	return objects[0], nil
}

func readObjects(files fs.FS, name string) ([]*unstructured.Unstructured, error) {
	content, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, fmt.Errorf("read admission policies: %w", err)
	}
	var objects []*unstructured.Unstructured
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), len(content))
	for {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		objects = append(objects, object)
	}
}

func setAction(binding *unstructured.Unstructured, denyOutside bool) error {
	actions, _, err := unstructured.NestedStringSlice(binding.Object, "spec", "validationActions")
	if err != nil {
		return fmt.Errorf("%s: spec.validationActions: %w", binding.GetName(), err)
	}
	if denyOutside && slices.Contains(actions, string(admissionv1.Warn)) {
		return unstructured.SetNestedStringSlice(binding.Object, []string{string(admissionv1.Deny)}, "spec", "validationActions")
	}
	return nil
}

// lifecycleUser is the user of the lifecycle controller. Further managers may belong to people.
const lifecycleUser = "system:serviceaccount:" + v1alpha1.SystemNamespace + ":lifecycle"

// NewParameters returns the parameter object of every cluster with further parameters added, each
// list sorted and without duplicates. The schedulers' identities lie in namespaces that no project
// can have.
func NewParameters(further v1alpha1.AdmissionParametersSpec) *v1alpha1.AdmissionParameters {
	return &v1alpha1.AdmissionParameters{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AdmissionParameters"},
		ObjectMeta: metav1.ObjectMeta{
			Name:   v1alpha1.AdmissionParametersName,
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice},
		},
		Spec: addDefaults(further),
	}
}

func addDefaults(further v1alpha1.AdmissionParametersSpec) v1alpha1.AdmissionParametersSpec {
	resources := []string{}
	for name := range workload.DefaultResourceUnits() {
		resources = append(resources, string(name))
	}
	return v1alpha1.AdmissionParametersSpec{
		Binders:         union(further.Binders, "system:kube-scheduler", "system:serviceaccount:kai-scheduler:binder"),
		Controllers:     union(further.Controllers, "system:kube-controller-manager", "system:serviceaccount:kube-system:*"),
		KindControllers: kindControllers(),
		Queues:          union(further.Queues, "system:serviceaccount:kueue-system:kueue-controller-manager"),
		Managers:        union(further.Managers, lifecycleUser),
		// The other classes of NVIDIA's DRA driver (compute-domain-...) hold channels between nodes.
		DeviceClasses:      union(further.DeviceClasses, "gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com"),
		GPUResources:       union(further.GPUResources, slices.Concat(resources, otherVendors)...),
		NonGPUResources:    union(further.NonGPUResources, nonGPUResources...),
		DeviceAnnotations:  union(further.DeviceAnnotations, deviceAnnotations...),
		ReservedNamespaces: union(further.ReservedNamespaces, reservedNamespaces...),
		ExemptNamespaces:   union(further.ExemptNamespaces),
		PodTemplates:       further.PodTemplates,
		MaxLabels:          cmp.Or(further.MaxLabels, v1alpha1.DefaultMaxLabels),
		MaxAnnotations:     cmp.Or(further.MaxAnnotations, v1alpha1.DefaultMaxAnnotations),
	}
}

// otherVendors are the GPUs of other vendors' device plugins, and those that NVIDIA's passes to virtual machines.
var otherVendors = []string{
	"amd.com/gpu", // github.com/ROCm/k8s-device-plugin
	// github.com/intel/intel-device-plugins-for-kubernetes (cmd/gpu_plugin)
	"gpu.intel.com/i915", "gpu.intel.com/xe",
	"habana.ai/gaudi",                    // Intel Gaudi's device plugin (docs.habana.ai)
	"nvidia.com/pgpu", "nvidia.com/vgpu", // GPU operator with Kata Containers (docs.nvidia.com, Confidential Containers)
}

// nonGPUResources are the usual devices that are no GPUs. Of plugins that offer any device file by its name only single
// names are listed.
var nonGPUResources = []v1alpha1.ResourcePattern{
	"rdma/*", // github.com/Mellanox/k8s-rdma-shared-dev-plugin, which offers network cards only
	// NVIDIA's network operator (docs.nvidia.com/networking/display/kubernetes2570/quick-start)
	"nvidia.com/hostdev", "nvidia.com/rdma_*",
	"intel.com/intel_sriov_*", // github.com/k8snetworkplumbingwg/sriov-network-device-plugin (README)
	"openshift.io/*",          // github.com/k8snetworkplumbingwg/sriov-network-operator (doc/basic-examples.md)
	"vpc.amazonaws.com/efa",   // AWS's device plugin of Elastic Fabric Adapters (github.com/aws/eks-charts)
	// github.com/kubevirt/kubevirt
	"devices.kubevirt.io/kvm", "devices.kubevirt.io/sev", "devices.kubevirt.io/tun", "devices.kubevirt.io/vhost-net",
	// github.com/microsoft/pai (device plugins), github.com/smarter-project/smarter-device-manager, github.com/squat/generic-device-plugin
	"github.com/fuse", "smarter-devices/fuse", "squat.ai/fuse",
}

// deviceAnnotations are the annotations by which a container gets devices, mounts or priorities of its node. The policy
// core.devices has the same list.
var deviceAnnotations = []string{
	// containerd and CRI-O
	"cdi.k8s.io", "devices.crio.io", "io.kubernetes.cri-o.Devices",
	// Plugins of NRI (github.com/containerd/nri): device-injector and network-device-injector, with the keys of their
	// former versions. The key cdi.nri.io is of the plugin cdi-injector, and devices.gke.io of Google's device-injector.
	"cdi-devices.noderesource.dev", "devices.noderesource.dev", "io-priority.noderesource.dev", "mounts.noderesource.dev",
	"cdi-devices.nri.io", "devices.nri.io", "io-priority.nri.io", "mounts.nri.io",
	"netdevice.noderesource.dev", "netdevices.nri.containerd.io", "netdevices.nri.io",
	"cdi.nri.io", "devices.gke.io",
}

// reservedNamespaces are the usual names of namespaces of a cluster's components.
var reservedNamespaces = []v1alpha1.NamespacePattern{
	"*-operator", "*-operators", "*-system", "cattle-*", "istio-*", "knative-*", "kube-*", "nvidia-*", "openshift-*", "sluice-*",
	"argo", "argocd", "calico-apiserver", "cert-manager", "external-dns", "external-secrets", "grafana", "ingress", "keda", "kserve",
	"kubeflow", "kyverno", "local-path-storage", "logging", "monitoring", "observability", "prometheus", "rook-ceph",
	"tekton-pipelines", "trident", "vault", "velero",
}

// kindControllers returns the known operators.
func kindControllers() (all []v1alpha1.KindControllers) {
	operators := workloadkind.OperatorUsers()
	for _, kind := range slices.Sorted(maps.Keys(operators)) {
		controllers := v1alpha1.KindControllers{Kind: kind}
		for _, user := range operators[kind] {
			controllers.Users = append(controllers.Users, v1alpha1.UserPattern(user))
		}
		all = append(all, controllers)
	}
	return all
}

func union[T ~string](further []T, all ...T) []T {
	list := slices.Concat(all, further)
	slices.Sort(list)
	return slices.Compact(list)
}
