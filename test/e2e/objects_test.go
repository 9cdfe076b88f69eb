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
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
)

// newProject returns a valid project in department h2-students of the sample.
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

// create creates the object and deletes it at the end of the test.
func create[T client.Object](t testing.TB, object T) T {
	t.Helper()
	sharedCluster.createObject(t, object)
	t.Cleanup(func() { deleteAndWait(t, object) })
	return object
}

// createObject creates the object, and again while a webhook does not answer in time, or others change the quota meanwhile, as on a busy
// machine. Kubernetes reports both to the client.
func (s *sluiceCluster) createObject(t testing.TB, object client.Object) {
	t.Helper()
	backoff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.5, Steps: 14} // two minutes, and the requests
	if err := retry.OnError(backoff, isAdmissionTimeout, func() error { return s.adminClient.Create(t.Context(), object) }); err != nil {
		t.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
}

// deleteAndWait deletes the object and waits until it no longer exists. It confirms the deletion of
// a project.
func deleteAndWait(t testing.TB, object client.Object) {
	t.Helper()
	ctx := context.Background() // the test context has ended
	if project, ok := object.(*v1alpha1.Project); ok {
		if err := confirmDeletion(ctx, sharedCluster, project.Name); client.IgnoreNotFound(err) != nil {
			t.Errorf("confirm the deletion of project %s: %v", project.Name, err)
		}
	}
	if err := sharedCluster.adminClient.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
		t.Errorf("delete %T %s: %v", object, object.GetName(), err)
		return
	}
	eventuallyLong(t, func() error { return checkDeleted(ctx, object) }) // a project stops its workloads first
}

// confirmDeletion confirms that a project may be deleted with its running work.
func confirmDeletion(ctx context.Context, s *sluiceCluster, name string) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationConfirmDelete, name)
	return s.adminClient.Patch(ctx, newProject(name), client.RawPatch(types.MergePatchType, []byte(patch)))
}

func checkDeleted(ctx context.Context, object client.Object) error {
	err := sharedCluster.adminClient.Get(ctx, client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%T %s still exists", object, object.GetName())
	}
	return err
}

// refresh reads the object again.
func refresh(t *testing.T, object client.Object) error {
	return sharedCluster.adminClient.Get(t.Context(), client.ObjectKeyFromObject(object), object)
}

// checkCondition returns an error unless the condition has the status and, if given, the
// reason.
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

// unexpectedState returns an error with the expected state and the observed one.
func unexpectedState(want string, got any) error {
	return fmt.Errorf("expected: %s; got: %v", want, got)
}

// checkLogContains returns an error unless the component's log contains the text.
func checkLogContains(component, text string) error {
	raw, err := os.ReadFile(filepath.Join(sharedCluster.dir, "logs", component+".log"))
	if err != nil {
		return err
	}
	if !strings.Contains(string(raw), text) {
		return fmt.Errorf("the log of %s does not contain %s", component, text)
	}
	return nil
}

// installAllowingWebhooks registers a mutating and a validating webhook for the pods of a
// namespace until the test ends. They use the same library as Sluice's webhook, decode the
// pod and allow it.
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
	clientConfig := admissionregistrationv1.WebhookClientConfig{
		URL:      &server.URL,
		CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}}
	namespaceSelector := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}}
	const name = "allow.example.org"
	create(tb, &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: name, ClientConfig: clientConfig, Rules: rules, NamespaceSelector: namespaceSelector,
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	})
	create(tb, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: name, ClientConfig: clientConfig, Rules: rules, NamespaceSelector: namespaceSelector,
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	})
}
