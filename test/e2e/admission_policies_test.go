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

// dryRun is how a door is tried: should it be open, nothing goes through.
var dryRun = []string{metav1.DryRunAll}

// namespaceAdmin is a person who may do everything in a project's namespace that
// Kubernetes' role admin allows, and more: bind, write status, change the
// namespace itself.
func namespaceAdmin(t *testing.T, namespace string) kubernetes.Interface {
	t.Helper()
	native, err := kubernetes.NewForConfig(namespaceAdminConfig(t, namespace))
	if err != nil {
		t.Fatal(err)
	}
	return native
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

// researcherConfig is a person with Kubernetes' role edit in a project's namespace.
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

// impersonatedConfig is the way to the cluster as that user, once the user's rights have
// come through.
func impersonatedConfig(t *testing.T, user, namespace string) *rest.Config {
	t.Helper()
	config := rest.CopyConfig(sharedCluster.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	native, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := native.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
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

// Every door is tried by somebody with all rights in the namespace, and stays
// shut. Guards invariant 4 of the design.
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
	debug := func(fields string) func(context.Context) error {
		return patch("ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"d","image":"any",`+fields+`}]}}`)
	}
	attempt := func(change ...func(*corev1.Pod)) func(context.Context) error {
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
		try  func(context.Context) error
		says string
	}{
		"an eviction that takes its time": {func(ctx context.Context) error {
			return pods.EvictV1(ctx, &policyv1.Eviction{
				ObjectMeta:    metav1.ObjectMeta{Namespace: ns, Name: victim.Name},
				DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(864000)), DryRun: dryRun},
			})
		}, "omit gracePeriodSeconds"},
		"a Binding": {func(ctx context.Context) error {
			return pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: victim.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "dgx-1"}}, metav1.CreateOptions{DryRun: dryRun})
		}, "only a scheduler may bind"},
		"nodeName": {attempt(func(p *corev1.Pod) { p.Spec.NodeName = "dgx-1" }), "does not choose its node"},
		"a forged controller": {attempt(func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "u", Controller: ptr.To(true)}}
		}), "only a controller may say"},
		"a controller added later":           {patch("", `{"metadata":{"ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"j","uid":"u","controller":true}]}}`), "only a controller may say"},
		"a changed type":                     {patch("", `{"metadata":{"labels":{"sluice.dev/workload-type":"inference"}}}`), "create the pod again"},
		"a label taken off":                  {patch("", `{"metadata":{"labels":{"sluice.dev/workload-type":null}}}`), "create the pod again"},
		"a label added":                      {patch("", `{"metadata":{"labels":{"sluice.dev/project":"thesis-mueller"}}}`), "create the pod again"},
		"a queue label":                      {patch("", `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"other"}}}`), "create the pod again"},
		"a larger share":                     {patch("", `{"metadata":{"annotations":{"gpu-fraction":"1"}}}`), "create the pod again"},
		"another creator":                    {patch("", `{"metadata":{"annotations":{"sluice.dev/created-by":"somebody"}}}`), "create the pod again"},
		"a larger share, by the status":      {patch("status", `{"metadata":{"annotations":{"gpu-fraction":"1"}}}`), "create the pod again"},
		"a toleration more":                  {patch("", `{"spec":{"tolerations":[{"key":"sluice.dev/repartitioning","operator":"Exists"}]}}`), "spec.tolerations"},
		"a debug container with all GPUs":    {debug(`"env":[{"name":"NVIDIA_VISIBLE_DEVICES","value":"all"}]`), "set it to void"},
		"a debug container with all, twice":  {debug(`"env":[{"name":"NVIDIA_VISIBLE_DEVICES","value":"void"},{"name":"NVIDIA_VISIBLE_DEVICES","value":"all"}]`), "set it to void"},
		"a debug container by its image":     {debug(`"envFrom":[{"configMapRef":{"name":"any"}}]`), "kubectl debug --env=NVIDIA_VISIBLE_DEVICES=void"},
		"a debug container with MIG devices": {debug(`"env":[{"name":"NVIDIA_VISIBLE_DEVICES","value":"void"},{"name":"NVIDIA_MIG_CONFIG_DEVICES","value":"all"}]`), "would reach a GPU"},
		"a privileged debug container":       {debug(void + `"securityContext":{"privileged":true}`), "privileged"},
		"a debug container that mounts":      {debug(void + `"securityContext":{"capabilities":{"add":["CAP_SYS_ADMIN"]}}`), "SYS_ADMIN"},
		"another project's label":            {namespace(`{"metadata":{"labels":{"sluice.dev/project":"thesis-mueller"}}}`), "a namespace becomes a project's by a Project"},
		"the label taken off":                {namespace(`{"metadata":{"labels":{"sluice.dev/project":null}}}`), "a namespace becomes a project's by a Project"},
		"the label, by the status":           {namespace(`{"metadata":{"labels":{"sluice.dev/project":null}}}`, "status"), "a namespace becomes a project's by a Project"},
		"the mark of the maker":              {namespace(`{"metadata":{"annotations":{"sluice.dev/created-for":"u"}}}`), "written by Sluice alone"},
		"a larger quota":                     {quota(`{"spec":{"hard":{"requests.sluice.dev/gpu-milli.dgx-mig":"8k"}}}`), "neither written nor deleted by others"},
		"a quota with nothing used":          {quota(`{"status":{"used":{"requests.sluice.dev/gpu-milli.dgx-mig":"0"}}}`, "status"), "neither written nor deleted by others"},
		"a quota that is nobody's":           {quota(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}`), "neither written nor deleted by others"},
		"a quota with a finalizer":           {quota(`{"metadata":{"finalizers":["example.org/stay"]}}`), "neither written nor deleted by others"},
		"a quota deleted": {func(ctx context.Context) error {
			return quotas.Delete(ctx, "sluice-dgx-mig", metav1.DeleteOptions{DryRun: dryRun})
		}, "neither written nor deleted by others"},
		"all quotas deleted": {func(ctx context.Context) error {
			return quotas.DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{})
		}, "neither written nor deleted by others"},
		"a quota prepared for an adoption": {func(ctx context.Context) error {
			_, err := eve.CoreV1().ResourceQuotas("default").Create(ctx, &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Name: "sluice-dgx", Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice}},
				Spec:       corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}},
			}, metav1.CreateOptions{DryRun: dryRun})
			return err
		}, "neither written nor deleted by others"},
		"a namespace made with a label": {func(ctx context.Context) error {
			_, err := eve.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "forged", Labels: map[string]string{v1alpha1.LabelProject: "thesis-mueller"}}}, metav1.CreateOptions{DryRun: dryRun})
			return err
		}, "a namespace becomes a project's by a Project"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := expectRefused(tc.try(t.Context()), tc.says); err != nil {
				t.Error(err)
			}
		})
	}
}

// What is in order passes: the doors stop nothing that Kubernetes itself does.
func TestAdmissionPoliciesAllow(t *testing.T) {
	const ns = "course-ml"
	eve := namespaceAdmin(t, ns)
	pods := eve.CoreV1().Pods(ns)
	owner := newNamespace(ns)
	if err := refresh(t, owner); err != nil {
		t.Fatal(err)
	}
	p := create(t, newPod(ns, "in-order", func(p *corev1.Pod) {
		// An owner that does not claim to control it.
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
		"a label of one's own":       `{"metadata":{"labels":{"mine":"yes"}}}`,
		"an annotation of one's own": `{"metadata":{"annotations":{"mine":"yes"}}}`,
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
			t.Errorf("a deletion with %d s: %v", seconds, err)
		}
	}
	// Only of a pod that runs: any other ends at once.
	if err := expectRefused(pods.Delete(t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(864000)), DryRun: dryRun}), "omit gracePeriodSeconds"); err != nil {
		t.Errorf("a deletion with ten days: %v", err)
	}
	if _, err := eve.CoreV1().ResourceQuotas(ns).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "own"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceConfigMaps: resource.MustParse("100")}},
	}, metav1.CreateOptions{DryRun: dryRun}); err != nil {
		t.Errorf("a quota of one's own: %v", err)
	}
	if _, err := eve.CoreV1().Namespaces().Patch(t.Context(), ns, "application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"team":"ours"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("a label of one's own on the namespace: %v", err)
	}
}

// Outside of projects a pod with a GPU is refused here, where Deny is on, with
// the way to get one; any other pod is not touched, and exempt namespaces are not.
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
	const says = "request a project from your department"
	tests := map[string]struct {
		pod  *corev1.Pod
		says string
	}{
		"a whole GPU":            {newPod("default", "p", gpu("nvidia.com/gpu")), says},
		"a slice":                {newPod("default", "p", gpu("nvidia.com/mig-1g.5gb")), says},
		"the currency itself":    {newPod("default", "p", gpu("sluice.dev/gpu-milli.dgx")), says},
		"Volcano's":              {newPod("default", "p", gpu("volcano.sh/vgpu-number")), says},
		"a DeviceClass":          {newPod("default", "p", gpu("deviceclass.resource.kubernetes.io/gpu.nvidia.com")), says},
		"another DeviceClass":    {newPod("default", "p", gpu("deviceclass.resource.kubernetes.io/nic.example.org")), ""},
		"an init container's":    {newPod("default", "p", inInit), says},
		"a fraction":             {newPod("default", "p", annotated("gpu-fraction")), says},
		"ours":                   {newPod("default", "p", annotated("sluice.dev/gpu")), says},
		"a priority of projects": {newPod("default", "p", func(p *corev1.Pod) { p.Spec.PriorityClassName = "sluice-train" }), "sluice-train"},
		"no GPU":                 {newPod("default", "p"), ""},
		"an exempt namespace":    {newPod("kube-system", "p", gpu("nvidia.com/gpu")), ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := sharedCluster.clientset.CoreV1().Pods(tc.pod.Namespace).Create(t.Context(), tc.pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if tc.says == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err := expectRefused(err, tc.says); err != nil {
				t.Error(err)
			}
		})
	}
}

func expectRefused(err error, says string) error {
	switch {
	case err == nil:
		return unexpectedState("it is refused", "accepted")
	case !strings.Contains(err.Error(), says):
		return unexpectedState("it is refused because "+says, err)
	default:
		return nil
	}
}
