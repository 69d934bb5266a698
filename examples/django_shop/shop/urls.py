"""The addresses of the shop."""

from django.contrib import admin
from django.urls import path

from . import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders/", views.orders),
    path("jobs/<str:id>/", views.job),
]
