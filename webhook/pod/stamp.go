// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/config"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/merge/schema"
	"sluice.dev/webhook/evaluation"
)

// stamp identifies all that decides on a pod beside the pod, its user and the time: the program, the policies with the data that they
// read, and the tenant. Each call of the Mutator adds its stamp to the pod. A call that denies a pod with another stamp than its own
// does not know whether the author is at fault: something changed since the Mutator allowed the pod, or another replica does not know
// the change yet. The client sends the pod again then, and also if the Mutator, called again, would change it under something else.
type stamp [sha256.Size]byte

func newStamp(request *decision.Request, namespace string) stamp {
	h := sha256.New()
	for _, part := range []string{config.Version, request.Policies.DigestFor(request.Subject(), namespace), request.Tenant.Version} {
		sum := sha256.Sum256([]byte(part))
		h.Write(sum[:])
	}
	return stamp(h.Sum(nil))
}

// stampBytes is the length of a stamp in the annotation.
const stampBytes = 8

// String returns the stamp as the annotation has it.
func (s stamp) String() string { return hex.EncodeToString(s[:stampBytes]) }

// stampsOf returns the stamps of a pod, one for each call of the Mutator under something else.
func stampsOf(pod map[string]any) []string {
	text := schema.AsString(schema.AsMap(schema.AsMap(pod["metadata"])["annotations"])[v1alpha1.AnnotationEvaluatedUnder])
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}

// addTo returns a copy of the pod that has the stamp.
func (s stamp) addTo(pod map[string]any) map[string]any {
	stamps := stampsOf(pod)
	if slices.Contains(stamps, s.String()) {
		return pod
	}
	after, metadata := maps.Clone(pod), cloneOrNew(pod["metadata"])
	annotations := cloneOrNew(metadata["annotations"])
	annotations[v1alpha1.AnnotationEvaluatedUnder] = strings.Join(append(stamps, s.String()), ",")
	metadata["annotations"], after["metadata"] = annotations, metadata
	return after
}

// isAlone reports whether the pod was mutated under nothing else.
func (s stamp) isAlone(pod map[string]any) bool {
	return !slices.ContainsFunc(stampsOf(pod), func(other string) bool { return other != s.String() })
}

// refusal returns the response to a pod that is not admitted, and whether it may be cached. A denial that may not be the author's
// becomes a request to send the pod again, which counts as no violation.
func (p *podRequest) refusal(result *evaluation.Result, denial admission.Response) (_ cachedResponse, cacheable bool) {
	if denial.Result.Code == http.StatusForbidden && !p.stamp.isAlone(result.Original) {
		return cachedResponse{response: retryResponse(p.user, denial.Result.Message)}, false
	}
	return cachedResponse{response: denial, violations: result.Violations}, !result.Transient
}

// retryResponse asks a client to send the pod again.
func retryResponse(user authenticationv1.UserInfo, cause string) admission.Response {
	retries.Inc()
	return evaluation.RetryResponse(user, "policies, their data, the project or its node pools changed a moment ago, "+
		"or Sluice is being upgraded: try again in a moment\n"+cause)
}

var retries = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "sluice_admission_retries_total",
	Help: "Pods whose creation the client is asked to repeat, since policies, their data, the project, its node pools or the program " +
		"changed between the two calls of the webhook.",
})

func init() { metrics.Registry.MustRegister(retries) }
