// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
)

// The manifests contain the PriorityClasses of the code.
func TestPriorityClassesMatchAPI(t *testing.T) {
	objects, err := manifests.Build(manifests.Base)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int32{}
	for _, object := range objects {
		if object.GetKind() != "PriorityClass" {
			continue
		}
		var class schedulingv1.PriorityClass
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &class, true); err != nil {
			t.Fatal(err)
		}
		got[class.Name] = class.Value
		if class.GlobalDefault {
			t.Errorf("%s is the default of all pods", class.Name)
		}
		const autoscalerCutOff = -10
		if never := ptr.Deref(class.PreemptionPolicy, "") == corev1.PreemptNever; never != (class.Name == v1alpha1.PriorityClassCPU) {
			t.Errorf("%s has the preemption policy %s", class.Name, ptr.Deref(class.PreemptionPolicy, ""))
		}
		if class.Name != v1alpha1.PriorityClassCPU && class.Value <= v1alpha1.PriorityCPU {
			t.Errorf("%s has the value %d, and pods without GPUs do not rank below it", class.Name, class.Value)
		}
		if class.Value > 0 || class.Value <= autoscalerCutOff {
			t.Errorf("%s has the value %d; want more than %d, and nothing above other people's pods", class.Name, class.Value, autoscalerCutOff)
		}
	}
	want := map[string]int32{
		v1alpha1.PriorityClassCPU:                    v1alpha1.PriorityCPU,
		v1alpha1.PriorityClassTrain:                  v1alpha1.PriorityTrain,
		v1alpha1.PriorityClassInteractivePreemptible: v1alpha1.PriorityInteractivePreemptible,
		v1alpha1.PriorityClassInteractive:            v1alpha1.PriorityInteractive,
		v1alpha1.PriorityClassInference:              v1alpha1.PriorityInference,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-api +manifests)\n%s", diff)
	}
}

// findObject fills in the object of that kind and name, strictly.
func findObject(t *testing.T, objects []*unstructured.Unstructured, kind, name string, into any) {
	t.Helper()
	at := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
	if at < 0 {
		t.Fatalf("there is no %s %s", kind, name)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objects[at].Object, into, true); err != nil {
		t.Fatalf("%s %s: %v", kind, name, err)
	}
}

// The agent's DaemonSet matches the other manifests: its account, its folders, and a namespace that
// admits it.
func TestAgent(t *testing.T) {
	objects, err := manifests.Build(manifests.Production)
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.DaemonSet
	var account corev1.ServiceAccount
	var files corev1.ConfigMap
	var namespace corev1.Namespace
	findObject(t, objects, "DaemonSet", "gpuagent", &set)
	findObject(t, objects, "ServiceAccount", "gpuagent", &account)
	findObject(t, objects, "ConfigMap", "gpuagent", &files)
	findObject(t, objects, "Namespace", v1alpha1.AgentNamespace, &namespace)

	pod := set.Spec.Template.Spec
	if set.Namespace != account.Namespace || pod.ServiceAccountName != account.Name {
		t.Errorf("it runs as %s in %s, and the account is %s in %s", pod.ServiceAccountName, set.Namespace, account.Name, account.Namespace)
	}
	if namespace.Labels[v1alpha1.LabelPodSecurityEnforce] != "privileged" {
		t.Errorf("its namespace refuses it: %v", namespace.Labels)
	}
	if !pod.HostPID || pod.HostNetwork || pod.HostIPC {
		t.Errorf("hostPID %v, hostNetwork %v, hostIPC %v", pod.HostPID, pod.HostNetwork, pod.HostIPC)
	}
	for key, value := range set.Spec.Selector.MatchLabels {
		if set.Spec.Template.Labels[key] != value {
			t.Errorf("its selector does not select it: %s", key)
		}
	}
	if files.Data["gpuagent.yaml"] == "" {
		t.Error("its configuration is empty")
	}
	c := pod.Containers[0]
	if !slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool {
		return v.Name == "NODE_NAME" && v.ValueFrom.FieldRef.FieldPath == "spec.nodeName"
	}) {
		t.Error("it does not get the name of its node")
	}
	if diff := cmp.Diff(agentMounts, describeMounts(pod, c)); diff != "" {
		t.Errorf("its mounts (-want +got); docs/platform/gpus.md explains each\n%s", diff)
	}
	for _, mount := range c.VolumeMounts {
		if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name }) {
			t.Errorf("there is no volume %s", mount.Name)
		}
	}
	if c.LivenessProbe == nil || c.ReadinessProbe == nil || c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
		t.Error("it has no probes, or no bounds")
	}
}

// agentMounts are the agent's folders of the host. Device nodes have to be made on the host and in the root
// of the driver's container, which is mounted later; all others but the journal are read only.
var agentMounts = map[string]string{
	"/var/lib/kubelet/pod-resources": "/var/lib/kubelet/pod-resources read only",
	"/var/lib/sluice/gpuagent":       "/var/lib/sluice/gpuagent",
	"/host/proc":                     "/proc read only",
	"/host/dev":                      "/dev",
	"/host/run/nvidia":               "/run/nvidia HostToContainer",
	"/host/etc/systemd/system":       "/etc/systemd/system read only",
}

// describeMounts returns the folders of the host that a container mounts.
func describeMounts(pod corev1.PodSpec, c corev1.Container) map[string]string {
	mounts := map[string]string{}
	for _, mount := range c.VolumeMounts {
		for _, volume := range pod.Volumes {
			if volume.Name != mount.Name || volume.HostPath == nil {
				continue
			}
			mounts[mount.MountPath] = volume.HostPath.Path
			if mount.ReadOnly {
				mounts[mount.MountPath] += " read only"
			}
			if mount.MountPropagation != nil {
				mounts[mount.MountPath] += " " + string(*mount.MountPropagation)
			}
		}
	}
	return mounts
}

// NVIDIA's driver manager changes a node's label before it unloads the driver, and waits for the DaemonSets
// with the label in their nodeSelector: it looks at no affinity, and gives up while the agent keeps the driver
// open. Without the operator no node has the label.
func TestAgentLeavesForDriverUpgrades(t *testing.T) {
	for folder, want := range map[string]struct {
		selector map[string]string
		affinity []string
	}{
		manifests.Production:      {map[string]string{"nvidia.com/gpu.deploy.client": "true"}, nil},
		manifests.WithoutOperator: {nil, []string{v1alpha1.LabelNodePool + " Exists"}},
	} {
		objects, err := manifests.Build(folder)
		if err != nil {
			t.Fatal(err)
		}
		var set appsv1.DaemonSet
		findObject(t, objects, "DaemonSet", "gpuagent", &set)
		pod := set.Spec.Template.Spec
		var affinity []string
		if pod.Affinity != nil {
			for _, term := range pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
				for _, e := range term.MatchExpressions {
					affinity = append(affinity, e.Key+" "+string(e.Operator))
				}
			}
		}
		if !maps.Equal(want.selector, pod.NodeSelector) || !slices.Equal(affinity, want.affinity) {
			t.Errorf("%s: it selects nodes by %v and the affinity %q", folder, pod.NodeSelector, affinity)
		}
	}
}

// Rights of the agent: no Node, no spec, nothing of other nodes that admission does not
// look at.
func TestAgentRBAC(t *testing.T) {
	objects, err := manifests.Build(manifests.Production)
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.ClusterRole
	var policy admissionv1.ValidatingAdmissionPolicy
	var binding admissionv1.ValidatingAdmissionPolicyBinding
	findObject(t, objects, "ClusterRole", "sluice-gpuagent", &role)
	findObject(t, objects, "ValidatingAdmissionPolicy", "sluice-gpuagent", &policy)
	findObject(t, objects, "ValidatingAdmissionPolicyBinding", "sluice-gpuagent", &binding)
	reads := []string{"get", "list", "watch"}
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				write := !slices.Contains(reads, verb)
				reviews := verb == "create" && slices.Contains([]string{"tokenreviews", "subjectaccessreviews"}, resource) // who reads its metrics
				if write && resource != "gpunodes/status" && resource != "events" && !reviews {
					t.Errorf("it may %s %s", verb, resource)
				}
			}
			if resource == "nodes" || resource == "secrets" {
				t.Errorf("it may read %s", resource)
			}
		}
	}
	if binding.Spec.PolicyName != policy.Name || policy.Spec.FailurePolicy == nil || *policy.Spec.FailurePolicy != admissionv1.Fail {
		t.Errorf("its policy is not in force: %+v", binding.Spec)
	}
}

// The NetworkPolicies allow the ports that the components use, metrics only from namespaces with the label, and
// nothing else: an unauthenticated request to the webhook would learn of other projects.
func TestNetworkPolicies(t *testing.T) {
	objects, err := manifests.Build(manifests.Production)
	if err != nil {
		t.Fatal(err)
	}
	const apiServer, dns, mail, exporter = "443,6443", "53,53,5353,5353 kube-system,openshift-dns 169.254.20.10/32", "587,465,25", "9400 gpu-operator,kube-system,nvidia-gpu-operator"
	for name, want := range map[string]struct {
		namespace       string
		ingress, egress []string
	}{
		"webhook":      {v1alpha1.SystemNamespace, []string{"9443", "8080 monitoring"}, []string{apiServer, dns}},
		"lifecycle":    {v1alpha1.SystemNamespace, []string{"8080 monitoring"}, []string{apiServer, dns, mail}},
		"certificates": {v1alpha1.SystemNamespace, nil, []string{apiServer}},
		"gpuagent":     {v1alpha1.AgentNamespace, []string{"8080 monitoring"}, []string{exporter, apiServer, dns}},
	} {
		var policy networkingv1.NetworkPolicy
		findObject(t, objects, "NetworkPolicy", name, &policy)
		if got := policy.Spec.PodSelector.MatchLabels["app.kubernetes.io/name"]; got != "sluice-"+name || policy.Namespace != want.namespace {
			t.Errorf("%s selects %s in %s", name, got, policy.Namespace)
		}
		if len(policy.Spec.PolicyTypes) != 2 {
			t.Errorf("%s restricts only %v", name, policy.Spec.PolicyTypes)
		}
		var ingress, egress []string
		for _, rule := range policy.Spec.Ingress {
			ingress = append(ingress, describeRule(rule.Ports, rule.From))
		}
		for _, rule := range policy.Spec.Egress {
			egress = append(egress, describeRule(rule.Ports, rule.To))
		}
		if diff := cmp.Diff([][]string{want.ingress, want.egress}, [][]string{ingress, egress}); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	var set appsv1.DaemonSet
	findObject(t, objects, "DaemonSet", "gpuagent", &set)
	if got := set.Spec.Template.Labels["app.kubernetes.io/name"]; got != "sluice-gpuagent" {
		t.Errorf("the agent's pods have the label %s", got)
	}
}

// describeRule returns the ports and the namespaces of a rule.
func describeRule(ports []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer) string {
	var numbers []string
	for _, port := range ports {
		numbers = append(numbers, port.Port.String())
	}
	parts := []string{strings.Join(numbers, ",")}
	for _, peer := range peers {
		if peer.IPBlock != nil {
			parts = append(parts, peer.IPBlock.CIDR)
			continue
		}
		labels := peer.NamespaceSelector.MatchLabels
		if labels["sluice.dev/monitoring"] == "true" {
			parts = append(parts, "monitoring")
		}
		if namespace := labels["kubernetes.io/metadata.name"]; namespace != "" {
			parts = append(parts, namespace)
		}
		for _, e := range peer.NamespaceSelector.MatchExpressions {
			if e.Key == "kubernetes.io/metadata.name" {
				parts = append(parts, strings.Join(e.Values, ","))
			}
		}
	}
	return strings.Join(parts, " ")
}
