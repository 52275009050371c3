import pandas as pd
import numpy as np
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt

df = pd.read_csv("data.csv", parse_dates=["date"])
df["month"] = df["date"].dt.to_period("M")
summary = df.groupby("month").agg({"sales": ["sum", "mean"], "units": "sum"})
print(summary.describe())
fig, ax = plt.subplots(figsize=(8, 4))
ax.plot(summary.index.astype(str), summary[("sales", "sum")], marker="o")
ax.set_title(f"Sales, {len(df)} rows")
plt.savefig("out.png")
x = np.linspace(0, 1, 100)
print(np.random.default_rng(0).normal(size=3), df.query("sales > 3").eval("a = sales * 2").head())
