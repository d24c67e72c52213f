package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"time"
)

// weather, news, stocks and notifications are what the loops of the page ask for.
type (
	weather struct {
		Place   string  `json:"place"`
		Celsius float64 `json:"celsius"`
		Sky     string  `json:"sky"`
	}
	news struct {
		Headlines []string `json:"headlines"` // the latest first
	}
	stocks struct {
		Prices []price `json:"prices"`
	}
	price struct {
		Symbol string  `json:"symbol"`
		Price  float64 `json:"price"`
		Change float64 `json:"change"` // of the day, in per cent
	}
	notifications struct {
		Unread int    `json:"unread"`
		Latest string `json:"latest"`
	}
)

// newService is the world. What it says follows from the time, so it has nothing to
// keep, but for how often it was asked for the weather.
func newService(slow time.Duration) http.Handler {
	mux := http.NewServeMux()
	var asked atomic.Int64
	mux.HandleFunc("GET /api/weather", func(w http.ResponseWriter, r *http.Request) {
		if n := asked.Add(1) % 8; n >= 4 && n <= 6 { // three in a row fail
			http.Error(w, "the station does not answer", http.StatusServiceUnavailable)
			return
		}
		now := time.Now()
		answer(w, weather{
			Place:   "Harbour",
			Celsius: math.Round(10*(14+6*wave(now, 3*time.Minute))) / 10,
			Sky:     pick(now, 30*time.Second, "clear", "a few clouds", "overcast", "light rain"),
		})
	})
	mux.HandleFunc("GET /api/news", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done(): // the page was hidden
			return
		case <-time.After(slow):
		}
		var headlines []string
		for i := range 3 {
			at := time.Now().Add(time.Duration(-i) * 20 * time.Second)
			headlines = append(headlines, pick(at, 20*time.Second,
				"Ferry returns with fewer hats than it left with",
				"Council puts the clock right, again",
				"Owl seen by day; experts asleep",
				"Bakery opens an hour early for nobody",
				"Bridge is older than the river, says survey"))
		}
		answer(w, news{headlines})
	})
	mux.HandleFunc("GET /api/stocks", func(w http.ResponseWriter, r *http.Request) {
		var s stocks
		for i, symbol := range []string{"TEA", "ROPE", "LAMP"} {
			open := 40 * float64(i+1)
			change := 3 * wave(time.Now(), time.Duration(i+2)*17*time.Second)
			s.Prices = append(s.Prices, price{symbol, math.Round(open*(100+change)) / 100, math.Round(100*change) / 100})
		}
		answer(w, s)
	})
	mux.HandleFunc("GET /api/notifications", func(w http.ResponseWriter, r *http.Request) {
		now := time.Now()
		answer(w, notifications{
			Unread: int(now.Unix()/10) % 7,
			Latest: pick(now, 20*time.Second, "Ada has answered you", "Your parcel is on the way", "The lift is mended"),
		})
	})
	return mux
}

func answer(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	fmt.Fprintln(w, string(body))
}

// wave goes from -1 to 1 and back in a period.
func wave(t time.Time, period time.Duration) float64 {
	return math.Sin(2 * math.Pi * float64(t.UnixMilli()%period.Milliseconds()) / float64(period.Milliseconds()))
}

// pick gives one text after the other, each for so long.
func pick(t time.Time, each time.Duration, texts ...string) string {
	return texts[t.UnixMilli()/each.Milliseconds()%int64(len(texts))]
}
