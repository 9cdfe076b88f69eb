// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
)

// dryRun makes each attempt a dry run, so that an attempt that is accepted changes nothing.
var dryRun = []string{metav1.DryRunAll}

// namespaceAdmin returns a client with more rights in the namespace than Kubernetes' role
// admin gives: it may also bind pods, write their status and change the namespace.
func namespaceAdmin(t *testing.T, namespace string) kubernetes.Interface {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(namespaceAdminConfig(t, namespace))
	if err != nil {
		t.Fatal(err)
	}
	return clientset
}

func namespaceAdminConfig(t *testing.T, namespace string) *rest.Config {
	t.Helper()
	const user = "eve@example.org"
	create(t, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "everything-in-a-namespace"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods", "pods/binding", "bindings", "pods/status", "pods/ephemeralcontainers", "pods/resize", "pods/eviction", "namespaces", "namespaces/status", "namespaces/finalize", "replicationcontrollers"}, Verbs: []string{"*"}},
			{APIGroups: []string{""}, Resources: []string{"resourcequotas", "resourcequotas/status", "limitranges"}, Verbs: []string{"*"}},
			{APIGroups: []string{"apps", "batch", "jobset.x-k8s.io", "kueue.x-k8s.io", "resource.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		},
	})
	create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "eve"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "everything-in-a-namespace"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
	return impersonatedConfig(t, user, namespace)
}

// researcherConfig returns the configuration of a user with Kubernetes' role edit in the
// namespace.
func researcherConfig(t *testing.T, namespace string) *rest.Config {
	t.Helper()
	const user = "ada@example.org"
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ada"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
	return impersonatedConfig(t, user, namespace)
}

// impersonatedConfig returns a configuration that impersonates the user. It waits until the
// user may list pods in the namespace.
func impersonatedConfig(t *testing.T, user, namespace string) *rest.Config {
	t.Helper()
	config := rest.CopyConfig(sharedCluster.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := clientset.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		return err
	})
	return config
}

func newPod(namespace, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To(int64(0)),
			Containers:                    []corev1.Container{{Name: "main", Image: "any"}},
		},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

// The admission policies reject every attempt, even by a user with all rights in the
// namespace. Guards invariant 4 of the design.
func TestAdmissionPoliciesReject(t *testing.T) {
	const ns = "course-ml"
	eve := namespaceAdmin(t, ns)
	pods := eve.CoreV1().Pods(ns)
	victim := create(t, newPod(ns, "victim", func(p *corev1.Pod) {
		p.Labels[v1alpha1.LabelWorkloadType] = "train"
		p.Annotations[v1alpha1.AnnotationGPUFraction] = "0.5"
		p.Spec.NodeSelector = map[string]string{"nowhere": "yes"} // it stays pending
	}))
	patch := func(subresource, body string) func(context.Context) error {
		return func(ctx context.Context) error {
			var subresources []string
			if subresource != "" {
				subresources = append(subresources, subresource)
			}
			_, err := pods.Patch(ctx, victim.Name, "application/strategic-merge-patch+json", []byte(body), metav1.PatchOptions{DryRun: dryRun}, subresources...)
			return err
		}
	}
	const void = `"env":[{"name":"NVIDIA_VISIBLE_DEVICES","value":"void"}],`
	debugContainer := func(fields string) func(context.Context) error {
		return patch("ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"d","image":"any",`+fields+`}]}}`)
	}
	createPod := func(change ...func(*corev1.Pod)) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := pods.Create(ctx, newPod(ns, "intruder", change...), metav1.CreateOptions{DryRun: dryRun})
			return err
		}
	}
	quotas := eve.CoreV1().ResourceQuotas(ns)
	quota := func(body string, subresources ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := quotas.Patch(ctx, "sluice-dgx-mig", "application/merge-patch+json", []byte(body), metav1.PatchOptions{DryRun: dryRun}, subresources...)
			return err
		}
	}
	namespace := func(body string, subresources ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := eve.CoreV1().Namespaces().Patch(ctx, ns, "application/merge-patch+json", []byte(body), metav1.PatchOptions{DryRun: dryRun}, subresources...)
			return err
		}
	}
	tests := map[string]struct {
		attempt func(context.Context) error
		message string
	}{
		"an eviction with a long grace period": {func(ctx context.Context) error {
			return pods.EvictV1(ctx, &policyv1.Eviction{
				ObjectMeta:    metav1.ObjectMeta{Namespace: ns, Name: victim.Name},
				DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(864000)), DryRun: dryRun},
			})
		}, "omit gracePeriodSeconds"},
		"a Binding": {func(ctx context.Context) error {
			return pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: victim.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "dgx-1"}}, metav1.CreateOptions{DryRun: dryRun})
		}, "only a scheduler may bind"},
		"nodeName": {createPod(func(p *corev1.Pod) { p.Spec.NodeName = "dgx-1" }), "does not choose its node"},
		"a forged controller": {createPod(func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "u", Controller: ptr.To(true)}}
		}), "only a controller may say"},
		"a controller added later":                      {patch("", `{"metadata":{"ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"j","uid":"u","controller":true}]}}`), "only a controller may say"},
		"a changed workload type":                       {patch("", `{"metadata":{"labels":{"sluice.dev/workload-type":"inference"}}}`), "create the pod again"},
		"a label removed":                               {patch("", `{"metadata":{"labels":{"sluice.dev/workload-type":null}}}`), "create the pod again"},
		"a label added":                                 {patch("", `{"metadata":{"labels":{"sluice.dev/project":"thesis-mueller"}}}`), "create the pod again"},
		"a queue label":                                 {patch("", `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"other"}}}`), "create the pod again"},
		"a larger GPU fraction":                         {patch("", `{"metadata":{"annotations":{"gpu-fraction":"1"}}}`), "create the pod again"},
		"another creator":                               {patch("", `{"metadata":{"annotations":{"sluice.dev/created-by":"other"}}}`), "create the pod again"},
		"a larger GPU fraction, through the status":     {patch("status", `{"metadata":{"annotations":{"gpu-fraction":"1"}}}`), "create the pod again"},
		"an additional toleration":                      {patch("", `{"spec":{"tolerations":[{"key":"sluice.dev/repartitioning","operator":"Exists"}]}}`), "spec.tolerations"},
		"a debug container with all GPUs":               {debugContainer(`"env":[{"name":"NVIDIA_VISIBLE_DEVICES","value":"all"}]`), "set it to void"},
		"a debug container with void and all":           {debugContainer(`"env":[{"name":"NVIDIA_VISIBLE_DEVICES","value":"void"},{"name":"NVIDIA_VISIBLE_DEVICES","value":"all"}]`), "set it to void"},
		"a debug container with a ConfigMap":            {debugContainer(`"envFrom":[{"configMapRef":{"name":"any"}}]`), "kubectl debug --env=NVIDIA_VISIBLE_DEVICES=void"},
		"a debug container with MIG devices":            {debugContainer(`"env":[{"name":"NVIDIA_VISIBLE_DEVICES","value":"void"},{"name":"NVIDIA_MIG_CONFIG_DEVICES","value":"all"}]`), "would reach a GPU"},
		"a privileged debug container":                  {debugContainer(void + `"securityContext":{"privileged":true}`), "privileged"},
		"a debug container with SYS_ADMIN":              {debugContainer(void + `"securityContext":{"capabilities":{"add":["CAP_SYS_ADMIN"]}}`), "SYS_ADMIN"},
		"another project's label":                       {namespace(`{"metadata":{"labels":{"sluice.dev/project":"thesis-mueller"}}}`), "a namespace becomes a project's by a Project"},
		"the project label removed":                     {namespace(`{"metadata":{"labels":{"sluice.dev/project":null}}}`), "a namespace becomes a project's by a Project"},
		"the project label removed, through the status": {namespace(`{"metadata":{"labels":{"sluice.dev/project":null}}}`, "status"), "a namespace becomes a project's by a Project"},
		"the annotation created-for":                    {namespace(`{"metadata":{"annotations":{"sluice.dev/created-for":"u"}}}`), "written by Sluice alone"},
		"a larger quota":                                {quota(`{"spec":{"hard":{"requests.sluice.dev/gpu-milli.dgx-mig":"8k"}}}`), "neither written nor deleted by others"},
		"a quota with its usage reset":                  {quota(`{"status":{"used":{"requests.sluice.dev/gpu-milli.dgx-mig":"0"}}}`, "status"), "neither written nor deleted by others"},
		"a quota without its manager label":             {quota(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}`), "neither written nor deleted by others"},
		"a quota with a finalizer":                      {quota(`{"metadata":{"finalizers":["example.org/stay"]}}`), "neither written nor deleted by others"},
		"a quota deleted": {func(ctx context.Context) error {
			return quotas.Delete(ctx, "sluice-dgx-mig", metav1.DeleteOptions{DryRun: dryRun})
		}, "neither written nor deleted by others"},
		"all quotas deleted": {func(ctx context.Context) error {
			return quotas.DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{})
		}, "neither written nor deleted by others"},
		"a quota created before an adoption": {func(ctx context.Context) error {
			_, err := eve.CoreV1().ResourceQuotas("default").Create(ctx, &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Name: "sluice-dgx", Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice}},
				Spec:       corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}},
			}, metav1.CreateOptions{DryRun: dryRun})
			return err
		}, "neither written nor deleted by others"},
		"a namespace created with a project label": {func(ctx context.Context) error {
			_, err := eve.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "forged", Labels: map[string]string{v1alpha1.LabelProject: "thesis-mueller"}}}, metav1.CreateOptions{DryRun: dryRun})
			return err
		}, "a namespace becomes a project's by a Project"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := checkRejected(tc.attempt(t.Context()), tc.message); err != nil {
				t.Error(err)
			}
		})
	}
}

// Ordinary requests pass: the admission policies allow everything that Kubernetes itself
// does.
func TestAdmissionPoliciesAllow(t *testing.T) {
	const ns = "course-ml"
	eve := namespaceAdmin(t, ns)
	pods := eve.CoreV1().Pods(ns)
	owner := newNamespace(ns)
	if err := refresh(t, owner); err != nil {
		t.Fatal(err)
	}
	p := create(t, newPod(ns, "ordinary", func(p *corev1.Pod) {
		// The reference does not claim that the owner controls the pod.
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: ns, UID: owner.UID}}
	}))
	eventually(t, func() error {
		if err := refresh(t, p); err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodRunning {
			return unexpectedState("the pod runs", p.Status.Phase)
		}
		return nil
	})
	for name, body := range map[string]string{
		"a user's label":      `{"metadata":{"labels":{"mine":"yes"}}}`,
		"a user's annotation": `{"metadata":{"annotations":{"mine":"yes"}}}`,
	} {
		if _, err := pods.Patch(t.Context(), p.Name, "application/merge-patch+json", []byte(body), metav1.PatchOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := pods.Patch(t.Context(), p.Name, "application/strategic-merge-patch+json",
		[]byte(`{"spec":{"ephemeralContainers":[{"name":"d","image":"any","env":[{"name":"NVIDIA_VISIBLE_DEVICES","value":"void"}],"securityContext":{"capabilities":{"add":["NET_BIND_SERVICE"]}}}]}}`), metav1.PatchOptions{}, "ephemeralcontainers"); err != nil {
		t.Errorf("a plain debug container: %v", err)
	}
	for _, seconds := range []int64{0, 600} {
		if err := pods.Delete(t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &seconds, DryRun: dryRun}); err != nil {
			t.Errorf("deletion with a grace period of %d s: %v", seconds, err)
		}
	}
	// Only the grace period of a running pod is limited: other pods end at once.
	if err := checkRejected(pods.Delete(t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(864000)), DryRun: dryRun}), "omit gracePeriodSeconds"); err != nil {
		t.Errorf("deletion with a grace period of ten days: %v", err)
	}
	if _, err := eve.CoreV1().ResourceQuotas(ns).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "own"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceConfigMaps: resource.MustParse("100")}},
	}, metav1.CreateOptions{DryRun: dryRun}); err != nil {
		t.Errorf("a user's quota: %v", err)
	}
	if _, err := eve.CoreV1().Namespaces().Patch(t.Context(), ns, "application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"team":"ours"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("a user's label on the namespace: %v", err)
	}
}

// Where the action is Deny, the admission policy rejects GPU pods outside projects and
// explains how to get a project. It ignores other pods and exempt namespaces.
func TestGPUPodsOutsideProjects(t *testing.T) {
	gpu := func(name corev1.ResourceName) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse("1")}
		}
	}
	annotated := func(key string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations[key] = "0.5" }
	}
	inInit := func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "any", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}}}
	}
	const requestProject = "request a project from your department"
	tests := map[string]struct {
		pod     *corev1.Pod
		message string
	}{
		"a whole GPU":                 {newPod("default", "p", gpu("nvidia.com/gpu")), requestProject},
		"a MIG device":                {newPod("default", "p", gpu("nvidia.com/mig-1g.5gb")), requestProject},
		"the GPU quota unit":          {newPod("default", "p", gpu("sluice.dev/gpu-milli.dgx")), requestProject},
		"a Volcano vGPU":              {newPod("default", "p", gpu("volcano.sh/vgpu-number")), requestProject},
		"a DeviceClass":               {newPod("default", "p", gpu("deviceclass.resource.kubernetes.io/gpu.nvidia.com")), requestProject},
		"another DeviceClass":         {newPod("default", "p", gpu("deviceclass.resource.kubernetes.io/nic.example.org")), ""},
		"a GPU of an init container":  {newPod("default", "p", inInit), requestProject},
		"a GPU fraction":              {newPod("default", "p", annotated("gpu-fraction")), requestProject},
		"the GPU annotation":          {newPod("default", "p", annotated("sluice.dev/gpu")), requestProject},
		"a PriorityClass of projects": {newPod("default", "p", func(p *corev1.Pod) { p.Spec.PriorityClassName = "sluice-train" }), "sluice-train"},
		"no GPU":                      {newPod("default", "p"), ""},
		"an exempt namespace":         {newPod("kube-system", "p", gpu("nvidia.com/gpu")), ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := sharedCluster.clientset.CoreV1().Pods(tc.pod.Namespace).Create(t.Context(), tc.pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if tc.message == "" {
				if err != nil {
					t.Errorf("rejected: %v", err)
				}
				return
			}
			if err := checkRejected(err, tc.message); err != nil {
				t.Error(err)
			}
		})
	}
}

func checkRejected(err error, message string) error {
	switch {
	case err == nil:
		return unexpectedState("the request is rejected", "accepted")
	case !strings.Contains(err.Error(), message):
		return unexpectedState("the request is rejected with the message "+message, err)
	default:
		return nil
	}
}
