// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
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

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/evaluation"
)

// limits are so long that no policy exceeds them on a busy machine.
var limits = engine.Limits{Evaluation: time.Minute, Request: time.Minute}

// newBase returns a base with the built-in policies, more policies, and one project with two node pools.
func newBase(tb testing.TB, more ...engine.Source) evaluation.Base {
	tb.Helper()
	return newBaseWithOptions(tb, engine.Options{Limits: limits}, more...)
}

func newBaseWithOptions(tb testing.TB, options engine.Options, more ...engine.Source) evaluation.Base {
	tb.Helper()
	options.Libraries = policies.Libraries()
	policyEngine, err := engine.New(options)
	if err != nil {
		tb.Fatal(err)
	}
	for _, report := range policyEngine.Update(append(policies.BuiltIn(), more...)) {
		for _, problem := range report.Problems {
			tb.Fatal(problem)
		}
	}
	return evaluation.Base{
		Evaluator: &evaluation.Evaluator{Engine: policyEngine, Clock: policytime.System()},
		Tenants:   &evaluation.TenantResolver{Cache: newFakeReader()},
	}
}

// fakeReader is a cache of these objects.
type fakeReader struct {
	client.Reader
	projects   []v1alpha1.Project
	department v1alpha1.Department
	pools      map[string]*v1alpha1.NodePool
	pause      *v1alpha1.Pause
}

func (s *fakeReader) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	switch list := list.(type) {
	case *v1alpha1.ProjectList:
		var options client.ListOptions
		options.ApplyOptions(opts)
		namespace, _ := options.FieldSelector.RequiresExactMatch(evaluation.ProjectNamespaceIndex)
		list.Items = slices.DeleteFunc(slices.Clone(s.projects), func(p v1alpha1.Project) bool { return p.Status.Namespace.Name != namespace })
	case *v1alpha1.NodePoolList:
		for _, name := range slices.Sorted(maps.Keys(s.pools)) {
			list.Items = append(list.Items, *s.pools[name])
		}
	}
	return nil
}

func (s *fakeReader) Get(_ context.Context, _ types.NamespacedName, object client.Object, _ ...client.GetOption) error {
	if department, ok := object.(*v1alpha1.Department); ok {
		s.department.DeepCopyInto(department)
	}
	if parameters, ok := object.(*v1alpha1.AdmissionParameters); ok {
		parameters.Status.Pause = s.pause.DeepCopy()
	}
	return nil
}

func newFakeReader() *fakeReader {
	pool := func(name string, sharing v1alpha1.Sharing, profiles ...v1alpha1.MIGProfile) *v1alpha1.NodePool {
		return &v1alpha1.NodePool{
			ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"},
			Spec: v1alpha1.NodePoolSpec{
				Scheduler: v1alpha1.SchedulerKube, Sharing: sharing, NodeSelector: map[string]string{"sluice.dev/node-pool": name},
				Tolerations: []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
			},
			Status: v1alpha1.NodePoolStatus{GPUs: 8, Products: []v1alpha1.GPUModel{{Name: "NVIDIA-A100-SXM4-40GB", MemoryMiB: 40960, GPUs: 8, MIGProfiles: profiles}}},
		}
	}
	quota := v1alpha1.GPUQuota{Guaranteed: resource.MustParse("2"), Limit: resource.MustParse("4")}
	return &fakeReader{
		projects: []v1alpha1.Project{{
			ObjectMeta: metav1.ObjectMeta{Name: "thesis", Generation: 1, ResourceVersion: "1"},
			Spec:       v1alpha1.ProjectSpec{Department: "students", NodePools: []v1alpha1.PoolQuota{{Name: "dgx-mig", GPU: quota}, {Name: "dgx", GPU: quota}}},
			Status: v1alpha1.ProjectStatus{
				Namespace:  &v1alpha1.ProjectNamespace{Name: "thesis"},
				Conditions: []metav1.Condition{{Type: v1alpha1.ConditionQuotaApplied, Status: metav1.ConditionTrue, ObservedGeneration: 1}},
				NodePools:  []v1alpha1.PoolUsage{{Name: "dgx-mig", GPUUsage: v1alpha1.GPUUsage{Limit: resource.MustParse("4")}}, {Name: "dgx", GPUUsage: v1alpha1.GPUUsage{Limit: resource.MustParse("4")}}},
			},
		}},
		department: v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students", ResourceVersion: "1"}},
		pools: map[string]*v1alpha1.NodePool{
			"dgx-mig": pool("dgx-mig", v1alpha1.SharingMIG, "1g.5gb", "2g.10gb", "3g.20gb"),
			"dgx":     pool("dgx", v1alpha1.SharingNone),
		},
	}
}

// trainingReview returns an admission review of about seven kilobytes, as the API server sends it. Pods of different
// numbers differ in images, arguments, labels and values of variables. Pods of one number belong to one controller
// and differ only by request.
func trainingReview(tb testing.TB, number, request int) []byte {
	tb.Helper()
	return encodeAdmissionReview(tb, trainingPod(number, request), request)
}

// distinctReview returns the review of a pod that also differs in the names of containers and variables, and in mounts.
func distinctReview(tb testing.TB, number int) []byte {
	tb.Helper()
	pod := trainingPod(number, number)
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		c.Name = fmt.Sprintf("%s-%d", c.Name, number)
		for j := range c.Env {
			c.Env[j].Name = fmt.Sprintf("SETTING_%d_%d", number, j)
		}
		c.VolumeMounts[0].MountPath = fmt.Sprintf("/data/%d", number)
	}
	return encodeAdmissionReview(tb, pod, number)
}

func trainingPod(number, request int) *corev1.Pod {
	container := func(name string) corev1.Container {
		c := corev1.Container{
			Name: name, Image: fmt.Sprintf("registry.example.org/team/%s:v%d", name, number),
			Command: []string{"python", "-m", "train", fmt.Sprintf("--seed=%d", number)},
			Resources: corev1.ResourceRequirements{
				Limits:   corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("8Gi")},
				Requests: corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("8Gi")},
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
	grace, toleration := int64(30), int64(300)
	never := corev1.PreemptLowerPriority
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: fmt.Sprintf("train-%d-", number), Namespace: "thesis",
			Labels:      map[string]string{"app": "train", "run": strconv.Itoa(number)},
			Annotations: map[string]string{v1alpha1.AnnotationGPUFraction: "0.25"},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
				Time: &metav1.Time{Time: time.Date(2026, 5, 1, 12, 0, request%60, 0, time.UTC)}, FieldsType: "FieldsV1",
				FieldsV1: metav1.NewFieldsV1(managedFields()),
			}},
		},
		Spec: corev1.PodSpec{
			Containers:    []corev1.Container{container("main"), container("sidecar")},
			RestartPolicy: corev1.RestartPolicyNever, DNSPolicy: corev1.DNSClusterFirst, SchedulerName: "default-scheduler",
			TerminationGracePeriodSeconds: &grace, SecurityContext: &corev1.PodSecurityContext{},
			ServiceAccountName: "default", DeprecatedServiceAccount: "default", EnableServiceLinks: new(true),
			Priority: new(int32), PreemptionPolicy: &never,
			Tolerations: []corev1.Toleration{
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &toleration},
				{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &toleration},
			},
			Volumes: []corev1.Volume{
				{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
				{Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
			},
		},
	}
	addTokenVolume(pod, tokenVolumeName(request))
	return pod
}

// addTokenVolume adds the token volume to a pod, as the API server does.
func addTokenVolume(pod *corev1.Pod, name string) {
	expires, mode := int64(3607), int32(0o644)
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &expires, Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}},
			}}},
		}},
	}})
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"})
	}
}

// tokenVolumeName returns a different name of a token volume for each number.
func tokenVolumeName(number int) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	name := []byte("kube-api-access-")
	for range 5 {
		name = append(name, letters[number%len(letters)])
		number /= len(letters)
	}
	return string(name)
}

func encodeAdmissionReview(tb testing.TB, pod any, request int) []byte {
	tb.Helper()
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

// managedFields returns managed fields in the format of the API server.
func managedFields() string {
	var fields []string
	for i := range 12 {
		fields = append(fields, fmt.Sprintf(`"k:{\"name\":\"SETTING_%d\"}":{".":{},"f:name":{},"f:value":{}}`, i))
	}
	env := strings.Join(fields, ",")
	return fmt.Sprintf(`{"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{"f:env":{%s}},"k:{\"name\":\"sidecar\"}":{"f:env":{%s}}}}}`, env, env)
}
