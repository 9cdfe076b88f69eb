// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
)

// newProject is a valid one of the sample's department h2-students.
func newProject(name string, change ...func(*v1alpha1.Project)) *v1alpha1.Project {
	p := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ProjectSpec{
			Department: "h2-students",
			Owners:     []v1alpha1.Owner{{Contact: v1alpha1.Contact{Name: "Owner", Email: "owner@example.org"}}},
			NodePools:  []v1alpha1.PoolQuota{{Name: "dgx-mig", GPU: v1alpha1.GPUQuota{Limit: resource.MustParse("1")}}},
		},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func inNamespace(namespace string) func(*v1alpha1.Project) {
	return func(p *v1alpha1.Project) { p.Spec.Namespace = namespace }
}

func newNamespace(name string, annotations ...string) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	for i := 0; i < len(annotations); i += 2 {
		n.Annotations[annotations[i]] = annotations[i+1]
	}
	return n
}

// create makes the object and sees to it that it is gone after the test.
func create[T client.Object](t testing.TB, object T) T {
	t.Helper()
	if err := sharedCluster.adminClient.Create(t.Context(), object); err != nil {
		t.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
	t.Cleanup(func() { deleteAndWait(t, object) })
	return object
}

// deleteAndWait deletes the object and waits until it is gone.
func deleteAndWait(t testing.TB, object client.Object) {
	t.Helper()
	ctx := context.Background() // a clean-up's test context has ended
	if err := sharedCluster.adminClient.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
		t.Errorf("delete %T %s: %v", object, object.GetName(), err)
		return
	}
	eventually(t, func() error { return checkDeleted(ctx, object) })
}

func checkDeleted(ctx context.Context, object client.Object) error {
	err := sharedCluster.adminClient.Get(ctx, client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%T %s is still there", object, object.GetName())
	}
	return err
}

// refresh reads the object anew.
func refresh(t *testing.T, object client.Object) error {
	return sharedCluster.adminClient.Get(t.Context(), client.ObjectKeyFromObject(object), object)
}

// checkCondition tells whether the condition is there as wanted.
func checkCondition(conditions []metav1.Condition, kind string, status metav1.ConditionStatus, reason string) error {
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil || c.Status != status || (reason != "" && c.Reason != reason) {
		return fmt.Errorf("condition %s = %+v, want %s %s", kind, c, status, reason)
	}
	return nil
}

// waitForProjectReady waits until the project is ready.
func waitForProjectReady(t *testing.T, p *v1alpha1.Project) {
	t.Helper()
	eventually(t, func() error {
		if err := refresh(t, p); err != nil {
			return err
		}
		return checkCondition(p.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	})
}

// unexpectedState says what is waited for, and what there is instead.
func unexpectedState(want string, got any) error {
	return fmt.Errorf("want that %s; got %v", want, got)
}

// checkLogContains tells whether the component's log has the text.
func checkLogContains(component, text string) error {
	raw, err := os.ReadFile(filepath.Join(sharedCluster.dir, "logs", component+".log"))
	if err != nil {
		return err
	}
	if !strings.Contains(string(raw), text) {
		return fmt.Errorf("the log of %s does not say %s", component, text)
	}
	return nil
}

// installAllowingWebhooks puts two webhooks before the pods of a namespace until the test ends,
// one that may change them and one that may not, with the library that Sluice's
// are served with. They decode the pod and allow it.
func installAllowingWebhooks(tb testing.TB, ns string) {
	tb.Helper()
	server := httptest.NewUnstartedServer(&admission.Webhook{Handler: admission.HandlerFunc(
		func(_ context.Context, req admission.Request) admission.Response {
			var pod corev1.Pod
			if err := json.Unmarshal(req.Object.Raw, &pod); err != nil {
				return admission.Errored(http.StatusBadRequest, err)
			}
			return admission.Allowed("")
		})})
	server.EnableHTTP2 = true
	server.StartTLS()
	tb.Cleanup(server.Close)
	asked := admissionregistrationv1.WebhookClientConfig{
		URL:      &server.URL,
		CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	about := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}}
	where := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}}
	const name = "indifferent.example.org"
	create(tb, &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: name, ClientConfig: asked, Rules: about, NamespaceSelector: where,
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	})
	create(tb, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: name, ClientConfig: asked, Rules: about, NamespaceSelector: where,
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	})
}
