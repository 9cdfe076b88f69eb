// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
	"sluice.dev/test/clustertest"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m)
}

// warnings collects what the API server warns of.
type warnings struct {
	sync.Mutex
	list []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.Lock()
	defer w.Unlock()
	w.list = append(w.list, text)
}

// startEmpty returns a cluster of the tests' own, without Sluice, and the administrator's client.
func startEmpty(t *testing.T) (*clustertest.Cluster, client.Client, *warnings) {
	t.Helper()
	c := clustertest.Start(t)
	if c.Attached() {
		t.Skip("it would install Sluice in the user's own cluster")
	}
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	collected := &warnings{}
	config := c.Config()
	config.WarningHandler = collected
	admin, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c, admin, collected
}

// On a real API server. Helm is first: it does not adopt what another program has installed.
func TestInstallationOnCluster(t *testing.T) {
	t.Run("Helm", testHelm)
	t.Run("UninstallHook", testUninstallHook)
	t.Run("overlays", testOverlays)
}

// testHelm: Helm installs, changes, rolls back and removes Sluice. An upgrade keeps the certificate authority that the webhook
// wrote. The removal keeps the CustomResourceDefinitions, and so all departments and projects, and what people's objects name.
func testHelm(t *testing.T) {
	c, admin, collected := startEmpty(t)
	run := func(arguments ...string) {
		t.Helper()
		output, err := helm(t, append(arguments, "--kubeconfig", c.Kubeconfig(), "-n", v1alpha1.SystemNamespace)...)
		if err != nil {
			t.Fatalf("helm %s: %v\n%s", strings.Join(arguments, " "), err, output)
		}
	}
	objects := buildObjects(t, manifests.Production)
	installed := func(want bool, ofAgent bool) {
		t.Helper()
		for _, object := range objects {
			if _, condition := placeInChart(t, object); ofAgent != strings.Contains(condition, "agent") || object.GetKind() == "CustomResourceDefinition" {
				continue
			}
			if object.GetKind() == "Job" { // named after the revision
				continue
			}
			if object.GetKind() == "Namespace" && object.GetName() == v1alpha1.SystemNamespace || !want && keptByHelm(object) {
				continue
			}
			clustertest.Eventually(t, func() error {
				err := admin.Get(t.Context(), client.ObjectKeyFromObject(object), object.DeepCopy())
				if want == (err == nil) && client.IgnoreNotFound(err) == nil {
					return nil
				}
				return errors.Join(fmt.Errorf("%s: want it there: %v", identity(object), want), err)
			})
		}
	}

	run("install", "sluice", chartFolder, "--create-namespace")
	t.Cleanup(func() { removeAll(t, admin, objects) })
	installed(true, false)
	installed(true, true)
	expectPods(t, admin, "webhook")
	checkReleaseSize(t, admin)

	// As the Job certificates does.
	authority, err := os.ReadFile(c.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	var webhooks admissionv1.MutatingWebhookConfiguration
	key := types.NamespacedName{Name: "sluice"}
	if err := admin.Get(t.Context(), key, &webhooks); err != nil {
		t.Fatal(err)
	}
	before := webhooks.DeepCopy()
	for i := range webhooks.Webhooks {
		webhooks.Webhooks[i].ClientConfig.CABundle = authority
	}
	if err := admin.Patch(t.Context(), &webhooks, client.StrategicMergeFrom(before), client.FieldOwner(v1alpha1.FieldManagerCertificates)); err != nil {
		t.Fatal(err)
	}
	expectAuthority := func(after string) {
		t.Helper()
		if err := admin.Get(t.Context(), key, &webhooks); err != nil {
			t.Fatal(err)
		}
		for _, webhook := range webhooks.Webhooks {
			if !bytes.Equal(webhook.ClientConfig.CABundle, authority) {
				t.Errorf("%s has lost its certificate authority by %s", webhook.Name, after)
			}
		}
	}

	run("upgrade", "sluice", chartFolder, "--set", "agent.enabled=false,webhook.configuration.policyTimeout=100ms")
	installed(true, false)
	installed(false, true)
	expectAuthority("an upgrade")
	run("rollback", "sluice", "1")
	installed(true, true)
	expectAuthority("a rollback")
	run("uninstall", "sluice", "--no-hooks") // no kubelet runs the Job
	installed(false, false)
	installed(false, true)
	for _, object := range objects {
		if keptByHelm(object) {
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(object), object.DeepCopy()); err != nil {
				t.Errorf("removed: %v", err)
			}
		}
	}
	if len(collected.list) > 0 {
		t.Errorf("the API server warns: %q", collected.list)
	}
}

// keptByHelm reports whether an object stays in the cluster when Helm removes Sluice: the data, and what pod templates and the
// bindings of people name.
func keptByHelm(object *unstructured.Unstructured) bool {
	switch object.GetKind() {
	case "CustomResourceDefinition", "PriorityClass":
		return true
	}
	return object.GetKind() == "ClusterRole" && strings.HasPrefix(object.GetName(), "sluice:")
}

// testOverlays: each overlay is accepted by the API server without a warning, and Pod Security admits the pods of both Deployments.
func testOverlays(t *testing.T) {
	_, admin, collected := startEmpty(t)
	t.Cleanup(func() { removeAll(t, admin, buildObjects(t, manifests.Production)) })
	for _, overlay := range overlays {
		objects := buildObjects(t, overlay)
		for _, object := range objects {
			configuration := client.ApplyConfigurationFromUnstructured(object.DeepCopy())
			if err := admin.Apply(t.Context(), configuration, client.FieldOwner("test"), client.ForceOwnership); err != nil {
				t.Errorf("%s: %s: %v", overlay, identity(object), err)
			}
		}
		for _, name := range []string{"webhook", "lifecycle"} {
			expectPods(t, admin, name)
		}
		// Without a kubelet no pod becomes ready, so a Deployment would not replace those of another overlay. A Job cannot be changed.
		removeAll(t, admin, slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool {
			return o.GetKind() != "Deployment" && o.GetKind() != "Job"
		}))
	}
	if len(collected.list) > 0 {
		t.Errorf("the API server warns: %q", collected.list)
	}
}

// expectPods waits until the controller has created all pods of a Deployment.
func expectPods(t *testing.T, admin client.Client, name string) {
	t.Helper()
	clustertest.Eventually(t, func() error {
		var deployment appsv1.Deployment
		if err := admin.Get(t.Context(), types.NamespacedName{Namespace: v1alpha1.SystemNamespace, Name: name}, &deployment); err != nil {
			return err
		}
		if s := deployment.Status; s.ObservedGeneration != deployment.Generation || s.UpdatedReplicas < *deployment.Spec.Replicas {
			return fmt.Errorf("%s has %d pods, want %d: %v", name, s.UpdatedReplicas, *deployment.Spec.Replicas, s.Conditions)
		}
		return nil
	})
}

// removeAll deletes objects but CustomResourceDefinitions, and waits until they are gone.
func removeAll(t *testing.T, admin client.Client, objects []*unstructured.Unstructured) {
	t.Helper()
	objects = slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool { return o.GetKind() == "CustomResourceDefinition" })
	ctx := context.WithoutCancel(t.Context())
	for _, object := range slices.Backward(objects) {
		if err := client.IgnoreNotFound(admin.Delete(ctx, object.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationBackground))); err != nil {
			t.Errorf("%s: %v", identity(object), err)
		}
	}
	for _, object := range objects {
		clustertest.Eventually(t, func() error {
			err := admin.Get(ctx, client.ObjectKeyFromObject(object), object.DeepCopy())
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(fmt.Errorf("%s is still there", identity(object)), err)
		})
	}
}

// checkReleaseSize checks the Secret that Helm has written.
func checkReleaseSize(t *testing.T, admin client.Client) {
	t.Helper()
	var secrets corev1.SecretList
	if err := admin.List(t.Context(), &secrets, client.InNamespace(v1alpha1.SystemNamespace), client.MatchingLabels{"owner": "helm"}); err != nil {
		t.Fatal(err)
	}
	if len(secrets.Items) != 1 {
		t.Fatalf("%d releases", len(secrets.Items))
	}
	size := len(secrets.Items[0].Data["release"])
	t.Logf("the release takes %d KiB of %d", size>>10, corev1.MaxSecretSize>>10)
	if size > corev1.MaxSecretSize*9/10 {
		t.Errorf("the release takes %d bytes", size)
	}
}
