// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// numberedKeys returns a map of so many labels or annotations.
func numberedKeys(number int) map[string]string {
	keys := make(map[string]string, number)
	for i := range number {
		keys[fmt.Sprintf("example.org/key-%d", i)] = "x"
	}
	return keys
}

// memberWithToken returns a client with a token of a ServiceAccount that may edit the namespace.
func memberWithToken(t *testing.T, namespace, name string) kubernetes.Interface {
	t.Helper()
	create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	})
	token, err := sharedCluster.clientset.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(sharedCluster.config)
	config.BearerToken, config.WarningHandler, config.QPS = token.Status.Token, rest.NoWarnings{}, -1
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := clientset.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{Limit: 1})
		return err
	})
	return clientset
}

// statusPatch returns a change of a pod's status as the kubelet writes it.
func statusPatch(number int) []byte {
	return fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"False","message":"%d"}]}}`, number)
}

// A pod from before the project keeps its labels: its status is written, it can be annotated and
// loses a finalizer, and it is deleted, and none of this takes the API server long. Only what policies
// guard stays. Guards invariants 2 and 10 of the design.
func TestAdoptedPodBeyondSizeLimits(t *testing.T) {
	t.Parallel()
	const name, number = "adopted-storm", 10000
	create(t, newNamespace(name, v1alpha1.AnnotationAdoptBy, name))
	pod := newPod(name, "storm", func(p *corev1.Pod) {
		p.Labels, p.Finalizers = numberedKeys(number), []string{"example.org/stay"}
		p.Labels["priorityClassName"] = "x"
		p.Spec.NodeSelector = map[string]string{"nowhere": "yes"}
	})
	eventually(t, func() error {
		_, err := sharedCluster.clientset.CoreV1().Pods(name).Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	})
	sharedCluster.createGovernedProject(t, "h2-students", name, v1alpha1.PoolQuota{Name: "dgx-mig", GPU: newProject(name).Spec.NodePools[0].GPU})
	member := memberWithToken(t, name, "storm").CoreV1().Pods(name)
	kubelet := sharedCluster.clientset.CoreV1().Pods(name)
	patch := func(pods corev1client.PodInterface, body string, subresources ...string) error {
		start := policytime.MachineNow()
		_, err := pods.Patch(t.Context(), pod.Name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, subresources...)
		if took := policytime.MachineNow().Sub(start); took > time.Minute {
			t.Errorf("%.60s took %s", body, took)
		}
		return err
	}
	// The namespace's label reaches the API server's policies a moment later.
	eventually(t, func() error {
		return checkRejected(patch(member, `{"metadata":{"labels":{"more":"x"}}}`), "metadata.labels: 10002 entries")
	})
	for what, err := range map[string]error{
		"a status write":        patch(kubelet, string(statusPatch(1)), "status"),
		"an annotation":         patch(member, `{"metadata":{"annotations":{"mine":"x"}}}`),
		"another label's value": patch(member, `{"metadata":{"labels":{"example.org/key-0":"y"}}}`),
		"a label removed":       patch(member, `{"metadata":{"labels":{"example.org/key-1":null}}}`),
	} {
		if err != nil {
			t.Errorf("%s: %.500s", what, err.Error())
		}
	}
	for body, message := range map[string]string{
		`{"metadata":{"labels":{"sluice.dev/project":"other"}}}`:                         "create the pod again",
		`{"metadata":{"labels":{"runai-gpu-group/a":"y","example.org/key-3":null}}}`:     "only KAI-Scheduler assigns a pod to a GPU",
		`{"metadata":{"labels":{"priorityClassName":null}}}`:                             "what KAI-Scheduler reads",
		`{"metadata":{"labels":{"kueue.x-k8s.io/podset":"x","example.org/key-2":null}}}`: "kueue.x-k8s.io/",
		`{"metadata":{"annotations":{"sluice.dev/decisions":"{}"}}}`:                     "create the pod again",
		`{"metadata":{"annotations":{"sluice.dev/evaluated-under":"2f8a"}}}`:             "create the pod again",
	} {
		if err := checkRejected(patch(member, body), message); err != nil {
			t.Errorf("%s: %.500s", body, err.Error())
		}
	}
	if err := patch(member, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.org/stay"]}}`); err != nil {
		t.Errorf("a finalizer removed: %.500s", err.Error())
	}
	if err := member.Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Errorf("the deletion: %.500s", err.Error())
	}
	eventually(t, func() error { return checkDeleted(t.Context(), pod) })
}
