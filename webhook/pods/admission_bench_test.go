// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/clock"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/judge"
	"sluice.dev/webhook/pods"
	"sluice.dev/webhook/tenant"
)

// BenchmarkAdmission measures one admission, from the request's bytes to the
// answer's, with the built-in policies, against a handler that decodes the pod
// and allows it. Both take turns in one run, so that the ratio holds on a noisy
// machine.
func BenchmarkAdmission(b *testing.B) {
	desk := newDesk(b)
	// Of the controller's pods all but the first are known; of the others none.
	corpora := map[string]func(int) []byte{
		"OneController": func(i int) []byte { return review(b, 0, i) },
		"AllDifferent":  func(i int) []byte { return review(b, i, i) },
	}
	for name, body := range corpora {
		b.Run(name, func(b *testing.B) {
			mutator := &admission.Webhook{Handler: &pods.Mutator{Desk: desk}}
			validator := &admission.Webhook{Handler: &pods.Validator{Desk: desk}}
			baseline := &admission.Webhook{Handler: admission.HandlerFunc(decodeAndAllow)}
			var mutating, validating, decoding time.Duration
			b.ReportAllocs()
			next := 0
			for b.Loop() {
				b.StopTimer()
				raw := body(next)
				next++
				decoding += timed(b, baseline, raw)
				b.StartTimer()
				mutating += timed(b, mutator, raw)
				b.StopTimer()
				validating += timed(b, validator, raw)
				b.StartTimer()
			}
			b.ReportMetric(float64(decoding.Microseconds())/float64(next), "µs-decode-and-allow/op")
			b.ReportMetric(float64(validating.Microseconds())/float64(next), "µs-validate/op")
			b.ReportMetric(float64(mutating)/float64(decoding), "x-mutate")
			b.ReportMetric(float64(validating)/float64(decoding), "x-validate")
		})
	}
}

func timed(tb testing.TB, handler http.Handler, raw []byte) time.Duration {
	request := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, "/", bytes.NewReader(raw))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	start := clock.MachineNow()
	handler.ServeHTTP(recorder, request)
	took := clock.MachineNow().Sub(start)
	if recorder.Code != http.StatusOK {
		tb.Fatalf("%d: %s", recorder.Code, recorder.Body)
	}
	return took
}

func decodeAndAllow(_ context.Context, req admission.Request) admission.Response {
	var pod corev1.Pod
	if err := json.Unmarshal(req.Object.Raw, &pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	return admission.Allowed("")
}

// newDesk is a desk with the built-in policies, and one project with two pools.
func newDesk(tb testing.TB) pods.Desk {
	tb.Helper()
	rules, err := engine.New(engine.Options{Libraries: policies.Libraries()})
	if err != nil {
		tb.Fatal(err)
	}
	for _, report := range rules.Update(policies.BuiltIn()) {
		for _, problem := range report.Problems {
			tb.Fatal(problem)
		}
	}
	return pods.Desk{
		Judge:   &judge.Judge{Engine: rules, Clock: clock.System()},
		Tenants: &tenant.Directory{Cache: university()},
	}
}

// shelf is a cache with these objects and no others.
type shelf struct {
	client.Reader
	projects   []v1alpha1.Project
	department v1alpha1.Department
	pools      map[string]*v1alpha1.NodePool
}

func (s *shelf) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*v1alpha1.ProjectList).Items = s.projects
	return nil
}

func (s *shelf) Get(_ context.Context, key types.NamespacedName, object client.Object, _ ...client.GetOption) error {
	switch object := object.(type) {
	case *v1alpha1.Department:
		s.department.DeepCopyInto(object)
	case *v1alpha1.NodePool:
		s.pools[key.Name].DeepCopyInto(object)
	}
	return nil
}

func university() *shelf {
	pool := func(name string, sharing v1alpha1.Sharing, profiles ...v1alpha1.MIGProfile) *v1alpha1.NodePool {
		return &v1alpha1.NodePool{
			ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"},
			Spec: v1alpha1.NodePoolSpec{
				Scheduler: v1alpha1.SchedulerKube, Sharing: sharing, NodeSelector: map[string]string{"sluice.dev/node-pool": name},
				Tolerations: []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
			},
			Status: v1alpha1.NodePoolStatus{GPUs: 8, Boards: []v1alpha1.Board{{Product: "NVIDIA-A100-SXM4-40GB", MemoryMiB: 40960, GPUs: 8, MIGProfiles: profiles}}},
		}
	}
	quota := v1alpha1.GPUQuota{Guaranteed: resource.MustParse("2"), Limit: resource.MustParse("4")}
	return &shelf{
		projects: []v1alpha1.Project{{
			ObjectMeta: metav1.ObjectMeta{Name: "thesis", Generation: 1, ResourceVersion: "1"},
			Spec:       v1alpha1.ProjectSpec{Department: "students", NodePools: []v1alpha1.PoolQuota{{Name: "dgx-mig", GPU: quota}, {Name: "dgx", GPU: quota}}},
			Status: v1alpha1.ProjectStatus{
				Namespace:  &v1alpha1.ProjectNamespace{Name: "thesis"},
				Conditions: []metav1.Condition{{Type: v1alpha1.ConditionQuotaApplied, Status: metav1.ConditionTrue, ObservedGeneration: 1}},
			},
		}},
		department: v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students", ResourceVersion: "1"}},
		pools: map[string]*v1alpha1.NodePool{
			"dgx-mig": pool("dgx-mig", v1alpha1.SharingMIG, "1g.5gb", "2g.10gb", "3g.20gb"),
			"dgx":     pool("dgx", v1alpha1.SharingNone),
		},
	}
}

// review is an admission review of about seven kilobytes, as the API server sends
// it: of pods that differ in all that their authors write, by their number, and
// of the pods of one controller, which differ in the request only.
func review(tb testing.TB, number, request int) []byte {
	tb.Helper()
	container := func(name string) corev1.Container {
		c := corev1.Container{
			Name: name, Image: fmt.Sprintf("registry.example.org/team/%s:v%d", name, number),
			Command: []string{"python", "-m", "train", fmt.Sprintf("--seed=%d", number)},
			Resources: corev1.ResourceRequirements{
				Limits:   corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("64Gi")},
				Requests: corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("64Gi")},
			},
			VolumeMounts:             []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "shm", MountPath: "/dev/shm"}},
			TerminationMessagePath:   "/dev/termination-log",
			TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			ImagePullPolicy:          corev1.PullIfNotPresent,
		}
		for i := range 12 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: fmt.Sprintf("value-%d-%d", number, i)})
		}
		return c
	}
	grace := int64(30)
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: fmt.Sprintf("train-%d-", number), Namespace: "thesis",
			Labels:      map[string]string{"app": "train", "run": strconv.Itoa(number)},
			Annotations: map[string]string{v1alpha1.AnnotationGPUFraction: "0.25"},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
				Time: &metav1.Time{Time: time.Date(2026, 5, 1, 12, 0, request%60, 0, time.UTC)}, FieldsType: "FieldsV1",
				FieldsV1: metav1.NewFieldsV1(managed()),
			}},
		},
		Spec: corev1.PodSpec{
			Containers:    []corev1.Container{container("main"), container("sidecar")},
			RestartPolicy: corev1.RestartPolicyNever, DNSPolicy: corev1.DNSClusterFirst, SchedulerName: "default-scheduler",
			TerminationGracePeriodSeconds: &grace, SecurityContext: &corev1.PodSecurityContext{},
			Volumes: []corev1.Volume{
				{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
				{Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
			},
		},
	}
	object, err := json.Marshal(pod)
	if err != nil {
		tb.Fatal(err)
	}
	raw, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:  types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", request)),
			Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Namespace: "thesis", Operation: admissionv1.Create,
			UserInfo: authenticationv1.UserInfo{Username: "system:serviceaccount:kube-system:job-controller", Groups: []string{"system:serviceaccounts", "system:authenticated"}},
			Object:   runtime.RawExtension{Raw: object},
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

// managed are managed fields as the API server keeps them.
func managed() string {
	var fields []string
	for i := range 12 {
		fields = append(fields, fmt.Sprintf(`"k:{\"name\":\"SETTING_%d\"}":{".":{},"f:name":{},"f:value":{}}`, i))
	}
	env := strings.Join(fields, ",")
	return fmt.Sprintf(`{"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{"f:env":{%s}},"k:{\"name\":\"sidecar\"}":{"f:env":{%s}}}}}`, env, env)
}
