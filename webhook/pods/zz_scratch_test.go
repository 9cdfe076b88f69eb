package pods_test
import ("testing";"sluice.dev/policies/engine";"sluice.dev/policies";"sluice.dev/webhook/pods";"sigs.k8s.io/controller-runtime/pkg/webhook/admission";"time";"fmt";"syscall")
func TestZZ(t *testing.T){
 took := map[string]time.Duration{}
 rules, err := engine.New(engine.Options{Libraries: policies.Libraries(), Observe: func(e engine.Evaluation){ if !e.Recalled {took[e.Policy]+=e.Took} }, Limits: engine.Limits{Evaluation: time.Minute, Request: time.Minute}})
 if err!=nil {t.Fatal(err)}
 rules.Update(policies.BuiltIn())
 desk := newDesk(t); desk.Judge.Engine = rules
 m := &admission.Webhook{Handler:&pods.Mutator{Desk:desk}}
 for i:=range 50 { timed(t,m,unlike(t,i)) }
 clear(took)
 var a, b syscall.Rusage
 var bodies [][]byte
 for i:=range 300 { bodies=append(bodies, unlike(t,100+i)) }
 syscall.Getrusage(0,&a)
 for i:=range 300 { timed(t,m,bodies[i]) }
 syscall.Getrusage(0,&b); fmt.Println("CPUms", float64(b.Utime.Nano()-a.Utime.Nano()+b.Stime.Nano()-a.Stime.Nano())/1e6/300)
 for n,d := range took { fmt.Println(n, d/300) }
}
