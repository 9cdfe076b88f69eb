// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// The edits of TestEditsUnderLoadRefuseNobody.
const (
	policyEdits   = 48
	nodePoolEdits = 20
	podsPerEdit   = 2
)

// editedPool is the node pool that TestEditsUnderLoadRefuseNobody edits, and its project.
const editedPool = "edited"

// createPods creates a pod, or a workload with pods, and waits for them.
type createPods func(ctx context.Context, name string) error

// Under 48 edits of a policy and 20 of a node pool no pod of any client is refused, although what the two calls for a pod read
// differs again and again. Guards invariant 4 of the design.
func TestEditsUnderLoadRefuseNobody(t *testing.T) {
	s := newUnsharedCluster(t)
	s.startWebhookReplicas(t, 2)
	pool := &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: editedPool}, Spec: v1alpha1.NodePoolSpec{
		NodeSelector: map[string]string{"example.org/rack": "r0"}, Scheduler: v1alpha1.SchedulerKube, Sharing: v1alpha1.SharingNone,
	}}
	s.createForTest(t, pool)
	s.createDepartment(t, editedPool, newPoolQuota(editedPool, "0", "1000"))
	s.createGovernedProject(t, editedPool, editedPool, newPoolQuota(editedPool, "0", "1000"))
	rego := func(edit int) string {
		return fmt.Sprintf("package team\n\noverrides := {\"metadata\": {\"labels\": {\"team\": \"edit-%d\"}}}\n", edit)
	}
	policy := &v1alpha1.Policy{
		ObjectMeta: metav1.ObjectMeta{Name: "team"},
		Spec:       v1alpha1.PolicySpec{Enforcement: v1alpha1.EnforcementDeny, Match: v1alpha1.PolicyMatch{Projects: []string{editedPool}}, Rego: rego(0)},
	}
	s.createForTest(t, policy)

	clients := s.newLoadedClients(t)
	seconds := map[string]float64{}
	for edit := 1; edit <= policyEdits+nodePoolEdits; edit++ {
		var load sync.WaitGroup
		var mu sync.Mutex
		for name, create := range clients {
			load.Go(func() {
				for n := range podsPerEdit {
					start := time.Now()
					err := create(t.Context(), fmt.Sprint(edit, "-", n))
					for err != nil && strings.Contains(err.Error(), "failed calling webhook") { // the machine is busy
						err = create(t.Context(), fmt.Sprint(edit, "-", n))
					}
					mu.Lock()
					seconds[name] = max(seconds[name], time.Since(start).Seconds())
					if err != nil {
						t.Errorf("edit %d: %s: %v", edit, name, err)
					}
					mu.Unlock()
				}
			})
		}
		var err error
		if edit%3 == 0 && edit/3 <= nodePoolEdits {
			patch := client.MergeFrom(pool.DeepCopy())
			pool.Spec.NodeSelector["example.org/rack"] = fmt.Sprint("r", edit)
			err = s.adminClient.Patch(t.Context(), pool, patch)
		} else {
			patch := client.MergeFrom(policy.DeepCopy())
			policy.Spec.Rego = rego(edit)
			err = s.adminClient.Patch(t.Context(), policy, patch)
		}
		load.Wait()
		if err != nil || t.Failed() {
			t.Fatalf("edit %d: %v", edit, err)
		}
		s.checkLoad(t)
		s.deleteLoad(t)
	}
	for name := range clients {
		t.Logf("%-27s %d pods or workloads, none refused, at most %.1f s each", name, podsPerEdit*(policyEdits+nodePoolEdits), seconds[name])
	}
}

// checkLoad fails if a pod is a blend of what two calls read: it would select nodes of two racks.
func (s *sluiceCluster) checkLoad(t *testing.T) {
	t.Helper()
	var list corev1.PodList
	if err := s.adminClient.List(t.Context(), &list, client.InNamespace(editedPool)); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		text := list.Items[i].Spec.Affinity.String()
		if racks := strings.Count(text, "example.org/rack"); racks != 1 {
			t.Errorf("pod %s requires %d racks, want 1: %s", list.Items[i].Name, racks, text)
		}
	}
}

// deleteLoad deletes what the clients created, so that their quota has room.
func (s *sluiceCluster) deleteLoad(t *testing.T) {
	t.Helper()
	for _, object := range []client.Object{&appsv1.ReplicaSet{}, &batchv1.Job{}, &corev1.Pod{}} {
		err := s.adminClient.DeleteAllOf(t.Context(), object, client.InNamespace(editedPool), client.GracePeriodSeconds(0),
			client.PropagationPolicy(metav1.DeletePropagationBackground))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// newLoadedClients returns the clients: each has its own way to answer a request to try again.
func (s *sluiceCluster) newLoadedClients(t *testing.T) map[string]createPods {
	t.Helper()
	folder := t.TempDir()
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:flux-system:kustomize-controller", Groups: []string{"system:masters"}}
	flux, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kubectl := func(prefix string, arguments ...string) createPods {
		return func(ctx context.Context, name string) error {
			path := filepath.Join(folder, prefix+".yaml")
			content := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s-%s, namespace: %s}\nspec:\n  containers:\n"+
				"  - {name: main, image: any, resources: {limits: {nvidia.com/gpu: 1}}}\n", prefix, name, editedPool)
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				return err
			}
			_, err := s.kubectl(ctx, append(slices.Clone(arguments), "-f", path)...)
			return err
		}
	}
	return map[string]createPods{
		"kubectl create":              kubectl("created", "create"),
		"kubectl apply --server-side": kubectl("applied", "apply", "--server-side"),
		// As Flux does: first without effect, to learn what would change, and again in its next turn if it is asked to.
		"a GitOps client": func(ctx context.Context, name string) error {
			for _, more := range [][]client.PatchOption{{client.DryRunAll}, nil} {
				options := append([]client.PatchOption{client.ForceOwnership, client.FieldOwner("kustomize-controller")}, more...)
				err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
					//nolint:staticcheck // the typed configurations of Kubernetes know no pod of a file
					err := flux.Patch(ctx, newEditedPod("delivered-"+name), client.Apply, options...)
					if apierrors.IsTooManyRequests(err) {
						return false, nil
					}
					return err == nil, err
				})
				if err != nil {
					return err
				}
			}
			return nil
		},
		"the ReplicaSet controller": func(ctx context.Context, name string) error {
			name = "replicas-" + name
			labels, all := map[string]string{"app": name}, map[string]string{"app": name, v1alpha1.LabelWorkloadType: string(v1alpha1.WorkloadTrain)}
			return s.createControlled(ctx, &appsv1.ReplicaSet{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: editedPool},
				Spec: appsv1.ReplicaSetSpec{
					Replicas: ptr.To(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: all}, Spec: newEditedPod("").Spec},
				},
			}, labels, 2)
		},
		"the Job controller": func(ctx context.Context, name string) error {
			name = "job-" + name
			spec := newEditedPod("").Spec
			spec.RestartPolicy = corev1.RestartPolicyNever
			return s.createControlled(ctx, &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: editedPool},
				Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}},
			}, map[string]string{batchv1.JobNameLabel: name}, 1)
		},
	}
}

func newEditedPod(name string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: editedPool},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "any",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{v1alpha1.ResourceNVIDIAGPU: resource.MustParse("1")}},
		}}},
	}
}

// createControlled creates an object, and waits until its controller has created its pods: by itself, after a refusal too.
func (s *sluiceCluster) createControlled(ctx context.Context, object client.Object, labels map[string]string, pods int) error {
	if err := s.adminClient.Create(ctx, object); err != nil {
		return err
	}
	made := 0
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		var list corev1.PodList
		err := s.adminClient.List(ctx, &list, client.InNamespace(editedPool), client.MatchingLabels(labels))
		made = len(list.Items)
		return made == pods, err
	})
	if err != nil {
		return fmt.Errorf("%d of %d pods of %s are created: %w", made, pods, object.GetName(), err)
	}
	return nil
}
