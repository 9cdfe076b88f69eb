// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
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
	for _, seconds := range []int64{0, 60} {
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

// expectError fails the test unless the error contains the message. With an empty message it
// fails unless the request succeeded.
func expectError(t *testing.T, err error, message string) {
	t.Helper()
	if message == "" {
		if err != nil {
			t.Errorf("the request was rejected: %v", err)
		}
		return
	}
	if err := checkRejected(err, message); err != nil {
		t.Error(err)
	}
}

// clientFor returns a controller-runtime client for the configuration of a user.
func clientFor(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
