// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/admissionpolicy"
	"sluice.dev/manifests"
	"sluice.dev/test/clustertest"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m, clustertest.InstallKinds)
}

// startReconciler runs the reconciler until stop or the end of the test.
func startReconciler(t *testing.T) (stop func()) {
	t.Helper()
	kinds, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(clustertest.Start(t).Config(), ctrl.Options{
		Scheme: kinds, Logger: logr.Discard(), Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	if err != nil {
		t.Fatal(err)
	}
	reconciler := admissionpolicy.Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Files: manifests.Files, DenyGPUPodsOutside: true}
	if err := reconciler.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func newTestPod(namespace string, change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "pod-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "any"}}},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

func requestGPU(pod *corev1.Pod) {
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
}

func chooseNode(pod *corev1.Pod) { pod.Spec.NodeName = "dgx-1" }

// Without the parameter object, and without its kind, governed namespaces refuse what the policies
// cover, and pods elsewhere are left alone. The reconciler restores both. Guards invariants 2 and 4.
func TestMissingParameters(t *testing.T) {
	cluster, admin := clustertest.Start(t), clustertest.Admin(t)
	elsewhere, governed := clustertest.Namespace(t, cluster), clustertest.Namespace(t, cluster)
	label := fmt.Appendf(nil, `{"metadata":{"labels":{"%s":"lab"}}}`, v1alpha1.LabelProject)
	if err := admin.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: governed}}, client.RawPatch("application/merge-patch+json", label)); err != nil {
		t.Fatal(err)
	}
	create := func(pod *corev1.Pod) error {
		return client.NewDryRunClient(admin).Create(t.Context(), pod)
	}
	refused := func(err error, want string) error {
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("got %w, want a refusal that contains %q", err, want)
		}
		return nil
	}
	inForce := func() error {
		return errors.Join(
			refused(create(newTestPod(elsewhere, requestGPU)), "is not a project's"),
			refused(create(newTestPod(governed, chooseNode)), "does not choose its node"),
			create(newTestPod(elsewhere, nil)),
		)
	}
	ungoverned := func() error {
		return errors.Join(
			create(newTestPod(elsewhere, nil)),
			create(newTestPod(elsewhere, chooseNode)),
			// Several policies deny it, in no order.
			refused(create(newTestPod(governed, chooseNode)), "ValidatingAdmissionPolicy 'sluice-"),
		)
	}
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SystemNamespace}}
	if err := client.IgnoreAlreadyExists(admin.Create(t.Context(), system)); err != nil {
		t.Fatal(err)
	}
	stop := startReconciler(t)
	clustertest.Eventually(t, inForce)
	checkTypes(t, admin)
	stop()

	parameters := admissionpolicy.NewParameters(v1alpha1.AdmissionParametersSpec{})
	if err := admin.Delete(t.Context(), parameters); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func() error {
		return errors.Join(ungoverned(), create(newTestPod(elsewhere, requestGPU)))
	})
	stop = startReconciler(t)
	clustertest.Eventually(t, inForce)

	// The reconciler runs on: it sees the deletion and restores the kind and the object.
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "admissionparameters.sluice.dev"}}
	before := &unstructured.Unstructured{}
	before.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	if err := admin.Get(t.Context(), client.ObjectKey{Name: crd.Name}, before); err != nil {
		t.Fatal(err)
	}
	if err := admin.Delete(t.Context(), before.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func() error {
		if err := create(newTestPod(elsewhere, nil)); err != nil {
			t.Errorf("a CPU pod elsewhere: %v", err)
		}
		after := before.DeepCopy()
		if err := admin.Get(t.Context(), client.ObjectKey{Name: crd.Name}, after); err != nil {
			return err
		}
		if after.GetUID() == before.GetUID() {
			return errors.New("the kind is not deleted yet")
		}
		return inForce()
	})
	stop()
}

// checkTypes expects that the API server found no expression whose types are wrong.
func checkTypes(t *testing.T, admin client.Client) {
	t.Helper()
	clustertest.Eventually(t, func() error {
		var policies admissionv1.ValidatingAdmissionPolicyList
		if err := admin.List(t.Context(), &policies, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice}); err != nil {
			return err
		}
		if want := len(loadSet(t, true).policies); len(policies.Items) != want {
			return fmt.Errorf("%d policies of %d", len(policies.Items), want)
		}
		for _, p := range policies.Items {
			if p.Status.ObservedGeneration != p.Generation {
				return fmt.Errorf("%s is not checked yet", p.Name)
			}
			if checked := p.Status.TypeChecking; checked != nil {
				for _, warning := range checked.ExpressionWarnings {
					t.Errorf("%s: %s: %s", p.Name, warning.FieldRef, warning.Warning)
				}
			}
		}
		return nil
	})
}
