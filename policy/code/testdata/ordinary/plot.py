import seaborn as sns, scipy.stats as st
from scipy import signal, optimize
import numpy.linalg as la
import plotly.express as px
import statsmodels.api as sm
r = optimize.minimize(lambda v: (v ** 2).sum(), [1.0, 2.0])
print(st.norm.cdf(1.96), signal.find_peaks([0, 1, 0])[0], la.norm([3, 4]), r.x)
sns.set_theme(); px.bar(x=[1], y=[2]).write_html("p.html")
print(sm.OLS([1, 2], [1, 2]).fit().params)
