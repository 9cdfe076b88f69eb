// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package queues_test

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sluice.dev/api/clock"
	"sluice.dev/api/scheme"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/project"
	"sluice.dev/lifecycle/queues"
	"sluice.dev/lifecycle/render"
	"sluice.dev/lifecycle/render/queuekinds"
	"sluice.dev/policies/engine"
	"sluice.dev/test/cluster/clustertest"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m, clustertest.InstallKinds)
}

var (
	//go:embed testdata/engines.yaml
	engineKinds []byte
	//go:embed testdata/engines.rego
	enginePolicy string
)

// world is what keeps queues and projects at work, and an administrator beside it.
type world struct {
	testing.TB
	client.Client // the administrator's

	policies *policies
	// writes are lifecycle's until now; after limit of them none arrives any more.
	writes, limit atomic.Int64
	logs          *logs
	stop          func()
}

// start runs it until the test ends.
func start(t testing.TB) *world {
	t.Helper()
	w := &world{TB: t, Client: clustertest.Admin(t), policies: newPolicies(t), logs: &logs{}}
	w.limit.Store(1 << 60)
	kinds, err := scheme.New()
	if err != nil {
		t.Fatal(err)
	}
	often := true
	ours := cache.ByObject{Label: labels.SelectorFromSet(render.Ours())}
	byObject := map[client.Object]cache.ByObject{}
	for _, object := range render.Objects() {
		byObject[object] = ours
	}
	logger := funcr.New(w.logs.add, funcr.Options{})
	mgr, err := ctrl.NewManager(clustertest.Start(t).Config(), ctrl.Options{
		Scheme: kinds, Logger: logger, Controller: config.Controller{SkipNameValidation: &often},
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Cache: cache.Options{ByObject: byObject, DefaultTransform: cache.TransformStripManagedFields()},
	})
	if err != nil {
		t.Fatal(err)
	}
	engines, err := queuekinds.New(mgr.GetConfig(), mgr.GetHTTPClient(), queuekinds.Settings{
		Kinds: render.QueueKinds(), LookEvery: 100 * time.Millisecond, Logger: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	writing := &writer{mgr.GetClient(), w}
	keeper := queues.Keeper{Client: writing, Live: mgr.GetAPIReader(), Policies: w.policies.engine, Changes: w.policies, Queues: engines, Memory: &render.Memory{}}
	if err := errors.Join(
		mgr.Add(engines),
		inventory.IndexProjects(t.Context(), mgr.GetFieldIndexer()),
		(&queues.Departments{Keeper: keeper}).SetupWithManager(mgr),
		(&queues.NodePools{Keeper: keeper}).SetupWithManager(mgr),
		(&project.Reconciler{
			Client: writing, Live: mgr.GetAPIReader(), Policies: w.policies.engine, Changes: w.policies, Queues: engines,
			Events: mgr.GetEventRecorder("test"), Clock: clock.System(), Rights: noRights{},
		}).SetupWithManager(mgr),
	); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(w.stop)
	return w
}

// noRights: the members of these projects have none.
type noRights struct{}

func (noRights) Release(context.Context, *v1alpha1.Project) error { return nil }

// policies are one policy, which a test may change.
type policies struct {
	testing.TB
	engine *engine.Engine

	mu        sync.Mutex
	loaded    bool
	listeners []func([]engine.Report)
}

func newPolicies(t testing.TB) *policies {
	e, err := engine.New(engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &policies{TB: t, engine: e}
}

// OnReports implements render.Changes.
func (p *policies) OnReports(listener func([]engine.Report)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners = append(p.listeners, listener)
	if p.loaded {
		listener(nil)
	}
}

// are puts a policy in force.
func (p *policies) are(rego string) {
	p.Helper()
	for _, report := range p.engine.Update([]engine.Source{{Name: "test", Rego: rego}}) {
		for _, problem := range report.Problems {
			p.Fatal(problem)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loaded = true
	for _, listener := range p.listeners {
		listener(nil)
	}
}

// errCrashed is what a writer says that has come to its limit.
var errCrashed = errors.New("crashed")

// writer counts what lifecycle writes, and lets nothing through after the limit.
type writer struct {
	client.Client

	world *world
}

func (c *writer) may() error {
	if c.world.writes.Add(1) > c.world.limit.Load() {
		return errCrashed
	}
	return nil
}

func (c *writer) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	return errors.Join(c.may(), c.or(func() error { return c.Client.Create(ctx, object, options...) }))
}

func (c *writer) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	return errors.Join(c.may(), c.or(func() error { return c.Client.Delete(ctx, object, options...) }))
}

func (c *writer) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	return errors.Join(c.may(), c.or(func() error { return c.Client.Patch(ctx, object, patch, options...) }))
}

func (c *writer) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	return errors.Join(c.may(), c.or(func() error { return c.Client.Apply(ctx, object, options...) }))
}

func (c *writer) Status() client.SubResourceWriter { return &statusWriter{c.Client.Status(), c} }

// or does it unless the limit is passed.
func (c *writer) or(do func() error) error {
	if c.world.writes.Load() > c.world.limit.Load() {
		return nil
	}
	return do()
}

type statusWriter struct {
	client.SubResourceWriter

	writer *writer
}

func (s *statusWriter) Update(ctx context.Context, object client.Object, options ...client.SubResourceUpdateOption) error {
	return errors.Join(s.writer.may(), s.writer.or(func() error { return s.SubResourceWriter.Update(ctx, object, options...) }))
}

// logs keeps what was logged as an error.
type logs struct {
	mu     sync.Mutex
	errors []string
}

func (l *logs) add(_, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(line, `"error"=`) {
		l.errors = append(l.errors, line)
	}
}

// quiet fails the test where something was logged as an error.
func (w *world) quiet() {
	w.Helper()
	w.logs.mu.Lock()
	defer w.logs.mu.Unlock()
	if len(w.logs.errors) > 0 {
		w.Errorf("%d errors were logged, such as %s", len(w.logs.errors), w.logs.errors[0])
	}
}

// definitions are the CRDs of the engines.
func definitions(t testing.TB) []*unstructured.Unstructured {
	t.Helper()
	var list []*unstructured.Unstructured
	for reader := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(engineKinds), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := reader.Decode(object); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, object)
	}
}

// install makes the API server serve the engines' kinds.
func install(t testing.TB) {
	t.Helper()
	admin := clustertest.Admin(t)
	for _, definition := range definitions(t) {
		clustertest.Eventually(t, func() error {
			if err := client.IgnoreAlreadyExists(admin.Create(t.Context(), definition.DeepCopy())); err != nil {
				return err
			}
			now := definition.DeepCopy()
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil {
				return err
			}
			conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
			for _, condition := range conditions {
				c, _ := condition.(map[string]any)
				if c["type"] == string(apiextensionsv1.Established) && c["status"] == "True" && now.GetDeletionTimestamp() == nil {
					return nil
				}
			}
			return fmt.Errorf("%s is not served yet", now.GetName())
		})
	}
}

// uninstall makes it serve them no more.
func uninstall(t testing.TB) {
	t.Helper()
	admin := clustertest.Admin(t)
	for _, definition := range definitions(t) {
		clustertest.Eventually(t, func() error {
			if err := admin.Delete(t.Context(), definition.DeepCopy()); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s is there: %w", definition.GetName(), err)
			}
			return nil
		})
	}
}

// pool, department and project make one, which goes when the test has ended.
func (w *world) pool(name string, scheduler v1alpha1.Scheduler) *v1alpha1.NodePool {
	return made(w, &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodePoolSpec{
		Scheduler: scheduler, NodeSelector: map[string]string{"pool": name},
	}})
}

func (w *world) department(name string, pools ...string) *v1alpha1.Department {
	return made(w, &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.DepartmentSpec{NodePools: gpus("8", pools...)}})
}

func (w *world) project(name, department string, pools ...string) *v1alpha1.Project {
	return made(w, &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ProjectSpec{
		Department: department, Owners: []v1alpha1.Owner{{Contact: v1alpha1.Contact{Name: "A", Email: "a@example.org"}}}, NodePools: gpus("2", pools...),
	}})
}

func gpus(number string, pools ...string) []v1alpha1.PoolQuota {
	var quotas []v1alpha1.PoolQuota
	for _, pool := range pools {
		quotas = append(quotas, v1alpha1.PoolQuota{Name: pool, GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse(number), Limit: resource.MustParse("8")}})
	}
	return quotas
}

func made[T client.Object](w *world, object T) T {
	w.Helper()
	if err := w.Create(w.Context(), object); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { // whatever the test came to, the next begins without it
		object.SetFinalizers(nil)
		_ = w.Patch(context.Background(), object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		if err := client.IgnoreNotFound(w.Delete(context.Background(), object)); err != nil {
			w.Error(err)
		}
	})
	return object
}

// a is an empty object of a kind of Kueue.
func a(kind, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: kind})
	object.SetName(name)
	if kind == "LocalQueue" {
		object.SetNamespace(name)
		object.SetName("default")
	}
	return object
}

// spec is a field of the spec of an object as it is now.
func (w *world) spec(object *unstructured.Unstructured, field string) (string, error) {
	if err := w.Get(w.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		return "", err
	}
	value, _, err := unstructured.NestedString(object.Object, "spec", field)
	return value, err
}

// becomes waits until a field of an object is so.
func (w *world) becomes(object *unstructured.Unstructured, field, want string) {
	w.Helper()
	clustertest.Eventually(w, func() error {
		if got, err := w.spec(object, field); err != nil || got != want {
			return fmt.Errorf("spec.%s of %s %s is %q, want %q (%w)", field, object.GetKind(), object.GetName(), got, want, err)
		}
		return nil
	})
}

// goes waits until an object is gone.
func (w *world) goes(object client.Object) {
	w.Helper()
	clustertest.Eventually(w, func() error {
		if err := w.Get(w.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s %s is there: %w", object.GetObjectKind().GroupVersionKind().Kind, object.GetName(), err)
		}
		return nil
	})
}

// says waits until an object says of its queues what it should.
func (w *world) says(object client.Object, conditions *[]metav1.Condition, status metav1.ConditionStatus, message string) {
	w.Helper()
	clustertest.Eventually(w, func() error {
		if err := w.Get(w.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		got := meta.FindStatusCondition(*conditions, v1alpha1.ConditionQueueApplied)
		if got == nil || got.Status != status || got.ObservedGeneration != object.GetGeneration() || !strings.Contains(got.Message, message) {
			return fmt.Errorf("%s says %+v, want %s with %q", object.GetName(), got, status, message)
		}
		return nil
	})
}

func (w *world) merge(object client.Object, change string, options ...client.PatchOption) {
	w.Helper()
	if err := w.Patch(w.Context(), object, client.RawPatch(types.MergePatchType, []byte(change)), options...); err != nil {
		w.Fatal(err)
	}
}
