// SPDX-License-Identifier: Apache-2.0

// A worker of the kit in Go, on a generated client: a goroutine for each prompt in flight. ../README.md says what it does.
//
//	go generate && go build
//	./worker --model bible prompts.jsonl
package main

//go:generate sh generate.sh

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"npugraph.example/worker/npugraphpb"
)

const (
	promptMax = 1 << 20                // bytes of a line
	pauseMin  = 100 * time.Millisecond // before the second try; each further pause is twice as long
	pauseMax  = 5 * time.Second
)

var (
	address  = flag.String("address", "unix:/run/npugraphd/npugraphd.sock", "unix:PATH or HOST:PORT")
	ca       = flag.String("ca", "", "PEM file of the authority that signed the daemon's certificate")
	cert     = flag.String("cert", "", "PEM file of our certificate")
	key      = flag.String("key", "", "PEM file of its key")
	model    = flag.String("model", "bible", "name of a loaded model")
	inFlight = flag.Int("in-flight", 4, "most prompts at a time")
	tokens   = flag.Uint("tokens", 64, "most tokens of an answer")
	seed     = flag.Uint64("seed", 0, "of random draws")
	warmth   = flag.Float64("temperature", 0, "0: greedy")
	topK     = flag.Int("top-k", 0, "0: off")
	topP     = flag.Float64("top-p", 0, "0: off")
	timeout  = flag.Uint("timeout", 60, "seconds that a call or a token may take")
	scrapes  = flag.String("metrics", "127.0.0.1:0", "HOST:PORT for Prometheus")
)

var counts struct{ read, done, refused, retries, connects, tokens, inFlight atomic.Int64 }

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "worker: "+format+"\n", args...) }

// pause waits before the next try: at random between half of the pause and all of it, so that workers that were refused
// together do not come back together. It returns false if the worker drains.
func pause(drain context.Context, tries int) bool {
	whole := min(pauseMin<<min(tries, 10), pauseMax)
	select {
	case <-time.After(whole/2 + rand.N(whole/2)):
		return true
	case <-drain.Done():
		return false
	}
}

// explain returns the daemon's sentence and its stable reason.
func explain(err error, trailer metadata.MD) (message, reason string) {
	reason = status.Code(err).String()
	if given := trailer.Get("npugraph-reason"); len(given) > 0 {
		reason = given[0]
	}
	return status.Convert(err).Message(), reason
}

// ---- the connection ----

// A session of the daemon, which all slots share. Calls with its context name it, and end with it.
type session struct {
	ctx   context.Context
	end   context.CancelFunc
	calls npugraphpb.SequencesClient
}

type link struct {
	channel *grpc.ClientConn
	lock    sync.Mutex // held while connecting: one slot connects, the others wait
	current *session
	tries   int
}

func dial() (*grpc.ClientConn, error) {
	secrets := insecure.NewCredentials()
	if *ca != "" {
		authority, err := os.ReadFile(*ca)
		if err != nil {
			return nil, err
		}
		config := &tls.Config{RootCAs: x509.NewCertPool()}
		if !config.RootCAs.AppendCertsFromPEM(authority) {
			return nil, fmt.Errorf("%s has no certificate", *ca)
		}
		if *cert != "" {
			mine, err := tls.LoadX509KeyPair(*cert, *key)
			if err != nil {
				return nil, err
			}
			config.Certificates = []tls.Certificate{mine}
		}
		secrets = credentials.NewTLS(config)
	}
	again := backoff.Config{BaseDelay: pauseMin, Multiplier: 2, Jitter: 0.3, MaxDelay: pauseMax}
	return grpc.NewClient(*address, grpc.WithTransportCredentials(secrets), grpc.WithConnectParams(grpc.ConnectParams{Backoff: again}))
}

// bearer returns the token of the file $NPUGRAPH_TOKEN_FILE, which is read for each session, since short-lived tokens are
// replaced in place. It is not sent to another machine in the clear.
func bearer() (string, error) {
	path := os.Getenv("NPUGRAPH_TOKEN_FILE")
	if path == "" {
		return "", nil
	}
	host, _, _ := net.SplitHostPort(*address)
	if *ca == "" && !strings.HasPrefix(*address, "unix:") && host != "localhost" && !net.ParseIP(host).IsLoopback() {
		return "", errors.New("a token is sent to another machine only with TLS: give --ca")
	}
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}

// open opens a session and sees that the model is there: a daemon that was started again has to load it first. The
// session ends with its stream, and the stream ends with the context.
func open(channel *grpc.ClientConn) (*session, error) {
	token, err := bearer()
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.Background())
	if token != "" { // later calls have the identity of their session
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	s := &session{ctx, end, npugraphpb.NewSequencesClient(channel)}
	late := time.AfterFunc(time.Duration(*timeout)*time.Second, end)
	stream, err := npugraphpb.NewSessionsClient(channel).Open(ctx)
	if err == nil {
		request := &npugraphpb.SessionOpen{ClientName: "worker.go"}
		err = stream.Send(&npugraphpb.SessionRequest{Kind: &npugraphpb.SessionRequest_Open{Open: request}})
	}
	var event *npugraphpb.SessionEvent
	if err == nil || errors.Is(err, io.EOF) { // of Send: Recv has the status
		event, err = stream.Recv()
	}
	if err == nil {
		opened := event.GetOpened()
		s.ctx = metadata.AppendToOutgoingContext(ctx, "npugraph-session", strconv.FormatUint(opened.GetSession(), 10),
			"npugraph-session-token-bin", string(opened.GetToken()))
		_, err = s.calls.ListModels(s.ctx, &npugraphpb.ListModelsRequest{Name: *model})
	}
	if err == nil && !late.Stop() {
		err = context.DeadlineExceeded
	}
	if err != nil {
		end()
		return nil, err
	}
	go func() {
		for err == nil {
			_, err = stream.Recv() // what the daemon says meanwhile is advice
		}
		end()
	}()
	return s, nil
}

// get returns the session, once there is one; nil if the worker drains meanwhile.
func (l *link) get(drain context.Context) *session {
	l.lock.Lock()
	defer l.lock.Unlock()
	for drain.Err() == nil && (l.current == nil || l.current.ctx.Err() != nil) {
		fresh, err := open(l.channel)
		if err == nil {
			l.current, l.tries = fresh, 0
			counts.connects.Add(1)
			say("connected")
			break
		}
		say("not connected: %v", err)
		pause(drain, l.tries)
		l.tries++
	}
	if drain.Err() != nil {
		return nil
	}
	return l.current
}

// ---- a prompt ----

type result struct {
	Index   int64   `json:"index"`
	Tokens  []int32 `json:"tokens,omitempty"`
	Finish  string  `json:"finish,omitempty"`
	Error   string  `json:"error,omitempty"`
	Message string  `json:"message,omitempty"`
}

var out sync.Mutex

func write(r result) {
	line, _ := json.Marshal(r)
	out.Lock()
	defer out.Unlock()
	if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
		say("a result cannot be written: %v", err)
		os.Exit(1)
	}
	if r.Error != "" {
		counts.refused.Add(1)
	} else {
		counts.done.Add(1)
	}
}

var finishes = map[npugraphpb.FinishReason]string{
	npugraphpb.FinishReason_FINISH_REASON_LENGTH:  "length",
	npugraphpb.FinishReason_FINISH_REASON_STOP:    "stop",
	npugraphpb.FinishReason_FINISH_REASON_CONTEXT: "context",
}

// generate makes a text from its beginning. The trailer has the reason if it fails.
func generate(s *session, ids []int32) (text []int32, finish string, trailer metadata.MD, err error) {
	counts.inFlight.Add(1)
	defer counts.inFlight.Add(-1)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	wait := time.Duration(*timeout) * time.Second
	late := time.AfterFunc(wait, cancel) // for each message
	defer late.Stop()
	begin := time.Now()
	sampling := &npugraphpb.Sampling{Temperature: float32(*warmth), TopK: int32(*topK), TopP: float32(*topP), Seed: *seed}
	request := &npugraphpb.OpenRequest{Model: *model, Prompt: ids, Sampling: sampling}
	opened, err := s.calls.Open(ctx, request, grpc.Trailer(&trailer))
	if err != nil {
		return nil, "", trailer, err
	}
	defer func() {
		limited, done := context.WithTimeout(s.ctx, wait)
		s.calls.Close(limited, &npugraphpb.CloseRequest{Sequence: opened.Sequence}) // a lost session has closed it
		done()
	}()
	stream, err := s.calls.Generate(ctx, &npugraphpb.GenerateRequest{Sequence: opened.Sequence, MaxTokens: uint32(*tokens)})
	if err != nil {
		return nil, "", nil, err
	}
	for {
		reply, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return text, finish, nil, nil
		}
		if err != nil {
			return nil, "", stream.Trailer(), err
		}
		late.Reset(wait)
		if len(text) == 0 && len(reply.Tokens) > 0 {
			firstToken.count(time.Since(begin).Seconds())
		}
		text = append(text, reply.Tokens...)
		counts.tokens.Add(int64(len(reply.Tokens)))
		finish = finishes[reply.Finish]
	}
}

// answer tries until the prompt is answered, or the worker drains.
func answer(drain context.Context, l *link, index int64, ids []int32) {
	for tries := 0; ; tries++ {
		s := l.get(drain)
		if s == nil {
			return
		}
		text, finish, trailer, err := generate(s, ids)
		message, reason := explain(err, trailer)
		switch status.Code(err) {
		case codes.OK:
			write(result{Index: index, Tokens: text, Finish: finish})
			return
		case codes.InvalidArgument, codes.PermissionDenied, codes.OutOfRange, codes.Unimplemented:
			write(result{Index: index, Error: reason, Message: message})
			return
		case codes.ResourceExhausted: // the session is good
		default:
			s.end()
		}
		say("prompt %d again: %s [%s]", index, message, reason)
		counts.retries.Add(1)
		if !pause(drain, tries) {
			return
		}
	}
}

// ---- the queue ----

type prompt struct {
	index int64
	ids   []int32
}

func parse(line []byte) []int32 {
	var p struct{ Ids []int32 }
	if len(line) > promptMax || json.Unmarshal(line, &p) != nil {
		return nil
	}
	for _, id := range p.Ids {
		if id < 0 {
			return nil
		}
	}
	return p.Ids
}

// read hands lines over as fast as slots take them: what is not begun stays in the queue.
func read(in io.Reader, prompts chan<- prompt) {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			prompts <- prompt{counts.read.Add(1) - 1, parse(line)}
		}
		if err != nil {
			close(prompts)
			return
		}
	}
}

func slot(drain context.Context, l *link, prompts <-chan prompt) {
	for drain.Err() == nil {
		select {
		case p, more := <-prompts:
			if !more {
				return
			}
			if len(p.ids) > 0 {
				answer(drain, l, p.index, p.ids)
			} else {
				write(result{Index: p.index, Error: "BAD_LINE", Message: `a prompt is a line of JSON, {"ids": [1, 2, 3]}`})
			}
		case <-drain.Done():
			return
		}
	}
}

func run() int {
	flag.Parse()
	in, listener, channel, err := prepare()
	if err != nil || *inFlight < 1 || *tokens < 1 || *timeout < 1 {
		say("cannot start: %v", err)
		return 2
	}
	say("metrics on http://%s/metrics", listener.Addr())
	go http.Serve(listener, http.HandlerFunc(serveMetrics))
	// The first signal drains; the second one ends the worker at once.
	drain, restore := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(drain, func() { say("draining"); restore() })
	prompts, l := make(chan prompt), &link{channel: channel}
	go read(in, prompts)
	var slots sync.WaitGroup
	for range *inFlight {
		slots.Add(1)
		go func() { defer slots.Done(); slot(drain, l, prompts) }()
	}
	slots.Wait()
	if l.current != nil {
		l.current.end()
	}
	channel.Close()
	answered := counts.done.Load() + counts.refused.Load()
	say("answered %d of %d prompts", answered, counts.read.Load())
	if answered != counts.read.Load() {
		return 1
	}
	return 0
}

func prepare() (in io.Reader, listener net.Listener, channel *grpc.ClientConn, err error) {
	in = os.Stdin
	if flag.NArg() > 0 {
		in, err = os.Open(flag.Arg(0))
	}
	if err == nil {
		listener, err = net.Listen("tcp", *scrapes)
	}
	if err == nil {
		channel, err = dial()
	}
	return in, listener, channel, err
}

func main() { os.Exit(run()) }
